"""From logits to tokens, for several generations at once, without a model."""

import functools
import json
import tempfile
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch
from tiny_text import write_tokenizer

from sensorium.core.api import Constraint, SamplingParams
from sensorium.core.choosing import Choice, Chooser, Choosers, choose
from sensorium.core.grammar import Grammars, Matcher
from sensorium.core.span import SequenceFault
from sensorium.core.text.tokenizer import Tokenizer

VOCAB = 300
DIGITS = Constraint(kind="lark", grammar="start: /[0-9]{3}/")


@functools.cache
def tokenizer() -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder))
        return Tokenizer(Path(folder))


@functools.cache
def grammars() -> Grammars:
    return Grammars(tokenizer(), VOCAB)


STOP = tokenizer().control("<|im_end|>")
MARK = tokenizer().control("<|im_start|>")


def choosers(seed: int = 0) -> Choosers:
    return Choosers(torch.device("cpu"), seed=seed, grammars=grammars())


def sampling(
    *,
    temperature: float = 1.0,
    seed: int | None = 0,
    num_logprobs: int | None = None,
    constraint: Constraint | None = None,
    top_k: int = 0,
) -> SamplingParams:
    return SamplingParams(
        temperature=temperature,
        seed=seed,
        top_k=top_k,
        stop_token_ids=(STOP,),
        num_logprobs=num_logprobs,
        constraint=constraint,
    )


def ready(params: SamplingParams) -> Chooser:
    """Make a chooser and wait until its grammar is compiled."""
    chooser = choosers().new(params)
    if chooser.matcher is not None:
        chooser.matcher.allowed()
    return chooser


def one(logits: torch.Tensor, chooser: Chooser) -> Choice:
    """Choose for one row [V]."""
    (choice,) = choose(logits[None], [chooser])
    assert isinstance(choice, Choice)
    return choice


def logits_of(seed: int, steps: int) -> torch.Tensor:
    """Draw logits [steps, V]."""
    return torch.randn(steps, VOCAB, generator=torch.Generator().manual_seed(seed)) * 2


SETTINGS = (
    sampling(temperature=0),
    sampling(constraint=DIGITS),
    sampling(temperature=0.7, seed=3, num_logprobs=2),
    sampling(temperature=0, constraint=DIGITS),
    sampling(temperature=1.3, seed=4, top_k=5),
)


def test_a_row_chooses_what_it_would_choose_alone() -> None:
    together = [ready(params) for params in SETTINGS]
    alone = [ready(params) for params in SETTINGS]
    for step in range(3):
        logits = logits_of(step, len(SETTINGS))
        expected = [one(row, chooser) for row, chooser in zip(logits, alone, strict=True)]
        assert choose(logits, together) == expected


def test_a_constraint_masks_its_own_row_alone() -> None:
    chooser = ready(SETTINGS[3])
    steps = logits_of(1, 4)
    chosen = [one(row, chooser).token_id for row in steps]
    best_digits = [ord("0") + int(row[ord("0") : ord("9") + 1].argmax()) for row in steps[:3]]
    assert chosen == [*best_digits, STOP]


@pytest.mark.parametrize("seed", range(6))
def test_what_comes_before_the_constraint_is_as_without_it(seed: int) -> None:
    """The marks come up by chance; from the first one after "a" on the answer is constrained."""
    schema = json.dumps({"type": "array", "items": {"type": "boolean"}, "maxItems": 2})
    constraint = Constraint(kind="json_schema", grammar=schema, begin=("a", MARK))
    free, held = (
        ready(sampling(seed=seed, num_logprobs=1, constraint=c)) for c in (None, constraint)
    )
    steps = logits_of(seed, 400)
    steps[:, [ord("a"), MARK]] += 6  # together most of the choices
    steps[:, tokenizer().vocab_size :] = -torch.inf
    begun = None
    ids: list[int] = []
    for step, row in enumerate(steps):
        choice = one(row, held)
        if begun is None:
            assert choice == one(row, free)
            if ids[-1:] == [ord("a")] and choice.token_id == MARK:
                begun = step + 1
        ids.append(choice.token_id)
        if begun is not None and choice.token_id == STOP:
            break
    assert begun
    answer = json.loads(tokenizer().decode(ids[begun:-1]))
    assert len(answer) <= 2
    assert all(isinstance(item, bool) for item in answer)


@pytest.mark.parametrize("params", [SETTINGS[0], SETTINGS[1], SETTINGS[4]])
def test_log_probabilities_are_those_of_the_model_itself(params: SamplingParams) -> None:
    chooser = ready(
        sampling(
            temperature=params.temperature,
            top_k=params.top_k,
            constraint=params.constraint,
            num_logprobs=3,
        )
    )
    row = logits_of(5, 1)[0]
    choice = one(row, chooser)
    expected = row.double().softmax(-1).log()
    (logprobs,) = choice.logprobs
    assert logprobs.logprob == pytest.approx(float(expected[choice.token_id]), abs=1e-5)
    assert [token_id for token_id, _ in logprobs.top] == expected.topk(3).indices.tolist()
    assert [value for _, value in logprobs.top] == pytest.approx(expected.topk(3).values.tolist())


def test_log_probabilities_come_only_where_they_are_asked_for() -> None:
    row = logits_of(6, 1)[0]
    assert one(row, ready(sampling())).logprobs == ()
    (chosen_alone,) = one(row, ready(sampling(num_logprobs=0))).logprobs
    assert chosen_alone.top == ()


def test_a_row_that_is_not_finite_fails_alone() -> None:
    logits = logits_of(7, 3)
    logits[1, 5] = torch.nan
    first, fault, last = choose(logits, [Chooser(sampling=sampling(temperature=0))] * 3)
    assert isinstance(fault, SequenceFault)
    assert fault.code == "internal"
    assert first == Choice(token_id=int(logits[0].argmax()))
    assert last == Choice(token_id=int(logits[2].argmax()))


def test_a_model_that_rules_out_all_that_is_allowed_is_at_fault() -> None:
    logits = logits_of(8, 1)
    logits[0, ord("0") : ord("9") + 1] = -torch.inf
    (fault,) = choose(logits, [ready(SETTINGS[3])])
    assert isinstance(fault, SequenceFault)
    assert fault.code == "internal"


def test_a_grammar_that_still_compiles_asks_for_the_row_again() -> None:
    compiled = ready(SETTINGS[1])
    assert compiled.matcher is not None
    pending: Future[object] = Future()
    matcher = Matcher(
        pending,  # type: ignore[arg-type]  # never resolved: what it would hold doesn't matter
        grammars()._vocabulary,
        DIGITS,
        vocab_size=VOCAB,
        stop_token_ids=[STOP],
    )
    waiting = Chooser(sampling=SETTINGS[1], matcher=matcher)
    logits = logits_of(9, 2)
    nothing, choice = choose(logits, [waiting, Chooser(sampling=SETTINGS[0])])
    assert nothing is None
    assert choice == Choice(token_id=int(logits[1].argmax()))


def test_a_seed_repeats_its_draws_whatever_was_drawn_before() -> None:
    busy = choosers(seed=1)
    others = busy.new(sampling(seed=None))
    one(logits_of(10, 1)[0], others)
    steps = logits_of(11, 20)
    late, early = busy.new(sampling(seed=5)), choosers(seed=2).new(sampling(seed=5))
    assert [one(row, late) for row in steps] == [one(row, early) for row in steps]


def test_without_a_tokenizer_constraints_are_refused() -> None:
    bare = Choosers(torch.device("cpu"), seed=0, grammars=None)
    bare.check(sampling())
    with pytest.raises(SequenceFault, match="no tokenizer"):
        bare.check(sampling(constraint=DIGITS))
