"""Logits → token ids, for all sampled sequences of a step at once, with their log probabilities.

What one sequence chooses depends on its own logits, settings and randomness alone. The filters are
sampling.py's, the constraints grammar.py's.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sensorium.core.api import SamplingParams, TokenLogprobs
from sensorium.core.sampling import check_sampling, draw, greedy
from sensorium.core.span import SequenceFault

if TYPE_CHECKING:
    from sensorium.core.grammar import Grammars, Matcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Chooser:
    """How one generation chooses; it belongs to the generation and outlives the loss of its cache.

    `generator` is None for greedy choice, `matcher` where nothing is prescribed. Both carry state.
    `barred` ids are never chosen.
    """

    sampling: SamplingParams
    generator: torch.Generator | None = None
    matcher: "Matcher | None" = None
    barred: tuple[int, ...] = ()


class Choosers:
    """Makes the choosers of an engine's generations."""

    def __init__(
        self,
        device: torch.device,
        *,
        seed: int | None,
        grammars: "Grammars | None",
        barred: tuple[int, ...] = (),
    ) -> None:
        """`seed` makes those repeatable that name none; without `grammars` nothing constrains.

        None of them ever chooses one of the `barred` ids.
        """
        self._device = device
        self._seeds = random.Random(seed)
        self._grammars = grammars
        self._barred = barred

    def check(self, sampling: SamplingParams) -> None:
        """Raise SequenceFault for what can't be served; else begin to compile its constraint."""
        check_sampling(sampling)
        self._matcher(sampling)

    def new(self, sampling: SamplingParams) -> Chooser:
        """Make the chooser of one generation. Raises SequenceFault as `check` does."""
        generator = None
        if sampling.temperature > 0:
            seed = self._seeds.getrandbits(63) if sampling.seed is None else sampling.seed % 2**63
            generator = torch.Generator(self._device).manual_seed(seed)
        return Chooser(
            sampling=sampling,
            generator=generator,
            matcher=self._matcher(sampling),
            barred=self._barred,
        )

    def _matcher(self, sampling: SamplingParams) -> "Matcher | None":
        if sampling.constraint is None:
            return None
        if self._grammars is None:
            reason = "this model has no tokenizer, so nothing can be constrained"
            raise SequenceFault("bad_request", reason)
        return self._grammars.matcher(sampling.constraint, sampling.stop_token_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The next token of a generation; `logprobs` has one entry where they were asked for."""

    token_id: int
    logprobs: tuple[TokenLogprobs, ...] = ()


def choose(logits: Tensor, choosers: Sequence[Chooser]) -> list[Choice | SequenceFault | None]:
    """Choose a token for each row of `logits` [R, V].

    In the place of a row that can't go on stands its fault; None where its grammar is still being
    compiled, so that the row must be asked for again.

    In this order: barred ids and the constraint's mask, then temperature, top-k, min-p and top-p.
    Log probabilities are those of the model itself: of the logits as they are. Advances generators
    and matchers.
    """
    best, finite = greedy(logits)
    choices: list[Choice | SequenceFault | None] = []
    rows = zip(choosers, logits, best.tolist(), finite.tolist(), strict=True)
    for chooser, row, best_id, is_finite in rows:
        try:
            if not is_finite:
                raise SequenceFault("internal", "the model's output is not finite")
            choices.append(_choose_one(chooser, row, best_id))
        except SequenceFault as fault:
            choices.append(fault)
    return choices


def _choose_one(chooser: Chooser, logits: Tensor, best_id: int) -> Choice | None:
    """Choose from one row [V], whose largest value stands at `best_id`."""
    sampling, matcher = chooser.sampling, chooser.matcher
    permitted, token_id = logits, best_id
    is_greedy = chooser.generator is None and matcher is None
    if chooser.barred and (not is_greedy or best_id in chooser.barred):
        permitted = logits.index_fill(0, logits.new_tensor(chooser.barred).long(), float("-inf"))
        token_id = int(permitted.argmax())
    if matcher is not None:
        if not matcher.is_ready:
            return None
        allowed = matcher.allowed()
        if allowed is not None:
            permitted = permitted.masked_fill(~allowed.to(logits.device), float("-inf"))
            token_id = int(permitted.argmax())
            if not bool(permitted[token_id].isfinite()):
                reason = "the model rules out every token that the constraint allows"
                raise SequenceFault("internal", reason)
    if chooser.generator is not None:
        token_id = draw(permitted, sampling, chooser.generator)
    if matcher is not None:
        matcher.accept(token_id)
    if sampling.num_logprobs is None:
        return Choice(token_id=token_id)
    return Choice(token_id=token_id, logprobs=(_logprobs(logits, token_id, sampling.num_logprobs),))


def _logprobs(logits: Tensor, token_id: int, count: int) -> TokenLogprobs:
    """Log-softmax of one row [V] in float32: of the chosen id and the `count` likeliest."""
    logprobs = logits.float().log_softmax(-1)
    values, ids = logprobs.topk(min(count, len(logprobs)))
    top = tuple(zip(ids.tolist(), values.tolist(), strict=True))
    return TokenLogprobs(logprob=float(logprobs[token_id]), top=top)
