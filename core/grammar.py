"""Constraints on what a model writes: JSON schemas and Lark grammars, matched by llguidance.

The only module that knows llguidance. A constraint is compiled once, in a thread of its own, and
kept for later generations; each generation follows its own copy. Compiling most schemas takes a
millisecond, a mask over 49 k tokens 0.1 ms (one Zen 4 core); limits bound what hostile ones cost.
"""

import json
import math
import re
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from decimal import Decimal
from functools import cached_property

import llguidance
import numpy as np
import torch
from torch import Tensor

from sensorium.core.api import Constraint
from sensorium.core.span import SequenceFault
from sensorium.core.text.tokenizer import Tokenizer

MAX_GRAMMAR_BYTES = 64 << 10
MAX_MULTIPLE = 1000
MAX_MULTIPLES = 32
"""A number's remainder becomes states of an automaton: 1000 take 7 ms, a million 20 s. No other
keyword is known to escape llguidance's own limits."""

MAX_CACHED = 32
_MAX_MESSAGE = 300
_MAX_BEGIN = 256
_SOURCE_LINE = re.compile(r" *\d+ \| ")  # llguidance quotes the grammar around a fault
_WHITESPACE = r"[ \n]{0,16}"  # without an end a model can write nothing else for ever


class Grammars:
    """The constraints that generations over one vocabulary follow.

    Belongs to the thread that steps the engine; only compiling happens elsewhere.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        """`vocab_size` is the model's: logits may have more columns than the tokenizer has ids."""
        self._vocabulary = _Vocabulary(tokenizer)
        self._vocab_size = vocab_size
        self._compiled: OrderedDict[tuple[str, str], Future[llguidance.LLMatcher]] = OrderedDict()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar")

    def matcher(self, constraint: Constraint, stop_token_ids: Sequence[int]) -> "Matcher":
        """Return what one generation follows; its grammar may still be compiling.

        Raises SequenceFault for a constraint that can't be meant.
        """
        stops = [i for i in stop_token_ids if 0 <= i < self._vocab_size]
        if not stops:
            raise SequenceFault("bad_request", "a constraint needs a stop token to end with")
        if constraint.begin is not None:
            text, control = constraint.begin
            if len(text) > _MAX_BEGIN or not self._vocabulary.is_control(control):
                raise SequenceFault(
                    "bad_request",
                    f"constraint.begin must be at most {_MAX_BEGIN} characters and the id of a"
                    f" control token, got {len(text)} characters and {control}",
                )
        return Matcher(
            self._compile(constraint),
            self._vocabulary,
            constraint,
            vocab_size=self._vocab_size,
            stop_token_ids=stops,
        )

    def _compile(self, constraint: Constraint) -> "Future[llguidance.LLMatcher]":
        """Look a grammar up, or begin to compile it. Raises SequenceFault for hopeless ones."""
        key = (constraint.kind, constraint.grammar)
        if key not in self._compiled:
            check_grammar(constraint)
            self._compiled[key] = self._thread.submit(self._vocabulary.compile, constraint)
        self._compiled.move_to_end(key)
        if len(self._compiled) > MAX_CACHED:
            self._compiled.popitem(last=False)
        return self._compiled[key]


class Matcher:
    """Follows one generation, token by token."""

    def __init__(
        self,
        compiled: "Future[llguidance.LLMatcher]",
        vocabulary: "_Vocabulary",
        constraint: Constraint,
        *,
        vocab_size: int,
        stop_token_ids: list[int],
    ) -> None:
        """Begin with nothing generated."""
        self._compiled = compiled
        self._vocabulary = vocabulary
        self._kind = constraint.kind
        self._begin = constraint.begin
        self._vocab_size = vocab_size
        self._stop_token_ids = stop_token_ids
        self._text = b""  # since the last control token, its end

    @property
    def is_ready(self) -> bool:
        """Whether the grammar is compiled, so that `allowed` may be asked."""
        return self._compiled.done()

    def allowed(self) -> Tensor | None:
        """Return which ids may come next, bool [V]; None while anything may.

        A stop id may come only where the grammar is complete. Raises SequenceFault for a bad
        grammar, or one that turns out to be too complex.
        """
        matcher = self._matcher
        if self._begin is not None:
            return None
        bias = np.frombuffer(matcher.compute_logit_bias(), np.uint8)
        self._check()
        # numpy: what torch spreads over threads waits for them longer than this takes
        allowed = np.zeros(self._vocab_size, np.bool_)
        known = min(self._vocab_size, self._vocabulary.size)
        np.not_equal(bias[:known], 0, out=allowed[:known])
        allowed[self._stop_token_ids] = matcher.is_accepting()
        return torch.from_numpy(allowed)

    def accept(self, token_id: int) -> None:
        """Take the token that was chosen. Raises SequenceFault as `allowed` does."""
        if self._begin is None:
            if token_id not in self._stop_token_ids:
                self._matcher.consume_token(token_id)
                self._check()
            return
        text, control = self._begin
        if token_id == control and self._text.endswith(text.encode("utf-8", "replace")):
            self._begin = None
        elif self._vocabulary.is_control(token_id):
            self._text = b""
        else:
            self._text = (self._text + self._vocabulary.bytes_of(token_id))[-4 * _MAX_BEGIN :]

    @cached_property
    def _matcher(self) -> llguidance.LLMatcher:
        """A copy of the compiled grammar, at its beginning. Raises SequenceFault for a bad one."""
        error = self._compiled.exception()  # llguidance raises for few faults, and holds the others
        problem = self._compiled.result().get_error() if error is None else str(error)
        if problem:
            raise _refusal(f"the {self._kind} can't be followed", problem) from error
        return self._compiled.result().deep_copy()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise _refusal(f"the {self._kind} is too complex", self._matcher.get_error())


class _Vocabulary:
    """A tokenizer as llguidance sees it; an id past its last one stands for "may end here"."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.size = tokenizer.vocab_size
        names = [tokenizer.token_bytes(i) or b"<|%d|>" % i for i in range(self.size)]
        self.tokens = [*names, b"<|end of constraint|>"]
        self.bos_token_id = None
        self.eos_token_id = self.size
        self.special_token_ids = [i for i in range(self.size) if self.is_control(i)] + [self.size]
        self._tokens = llguidance.LLTokenizer(llguidance.TokenizerWrapper(self))

    def __call__(self, text: bytes) -> list[int]:
        """Tokenize; llguidance asks for it."""
        return self._tokenizer.encode(text.decode("utf-8", "replace"))

    def bytes_of(self, token_id: int) -> bytes:
        """Return what a token stands for: nothing for a control token."""
        return self._tokenizer.token_bytes(token_id)

    def is_control(self, token_id: int) -> bool:
        """Tell whether an id of the vocabulary is a control token's."""
        return 0 <= token_id < self.size and not self._tokenizer.token_bytes(token_id)

    def compile(self, constraint: Constraint) -> llguidance.LLMatcher:
        """Return a matcher at its beginning, or one in an error state for a bad grammar."""
        if constraint.kind == "json_schema":
            source = llguidance.LLMatcher.grammar_from_json_schema(
                constraint.grammar, overrides={"whitespace_pattern": _WHITESPACE}
            )
        else:
            source = llguidance.LLMatcher.grammar_from_lark(constraint.grammar)
        limits = llguidance.LLParserLimits(
            max_lexer_states=20_000,  # 1-2 kB each, in every copy
            step_lexer_fuel=100_000,  # 7 ms
            verbose_errors=False,
        )
        matcher = llguidance.LLMatcher(self._tokens, source, log_level=0, limits=limits)
        if not matcher.is_error():
            matcher.compute_logit_bias()  # the first mask costs most: copies start with its states
        return matcher


def check_grammar(constraint: Constraint) -> None:
    """Raise SequenceFault for what isn't worth compiling: too large, no JSON, too many states."""
    size = len(constraint.grammar.encode("utf-8", "replace"))
    if size > MAX_GRAMMAR_BYTES:
        limit = f"the {constraint.kind} has {size} bytes; the limit is {MAX_GRAMMAR_BYTES}"
        raise SequenceFault("bad_request", limit)
    multiples: list[int] = []
    try:
        if constraint.kind == "json_schema":
            _read_json(constraint.grammar, 0, multiples, whole=True)
        else:  # a grammar may hold schemas: %json {…}
            for found in re.finditer(r"%json\s*", constraint.grammar):
                _read_json(constraint.grammar, found.end(), multiples)
    except (ValueError, RecursionError, ArithmeticError) as error:
        raise _refusal(f"the {constraint.kind} holds no proper JSON", str(error)) from error
    if len(multiples) > MAX_MULTIPLES or math.lcm(*multiples) > MAX_MULTIPLE:
        raise SequenceFault(
            "bad_request",
            f"the {constraint.kind} may use multipleOf at most {MAX_MULTIPLES} times, and the least"
            f" common multiple of the values, without their decimal point, must be at most"
            f" {MAX_MULTIPLE}",
        )


def _read_json(text: str, begin: int, multiples: list[int], *, whole: bool = False) -> None:
    """Parse a JSON value and collect every `multipleOf` in it, as digits without a point."""

    def note(pairs: list[tuple[str, object]]) -> dict[str, object]:
        for key, value in pairs:
            if key == "multipleOf" and isinstance(value, int | Decimal):
                multiples.append(_digits(Decimal(value)))
        return dict(pairs)

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    decoder = json.JSONDecoder(object_pairs_hook=note, parse_float=Decimal, parse_constant=refuse)
    if whole:
        decoder.decode(text)
    else:
        decoder.raw_decode(text, begin)


def _digits(value: Decimal) -> int:
    """12.50 → 125: how many remainders there are to tell apart. Past the limit where unsure."""
    _, digits, exponent = value.normalize().as_tuple()
    if not isinstance(exponent, int) or not -12 <= exponent <= 3:
        return MAX_MULTIPLE + 1
    return max(1, int("".join(map(str, digits))) * 10 ** max(0, exponent))


def _refusal(what: str, why: str) -> SequenceFault:
    """Say what is wrong, in one line of bounded length."""
    lines = [line for line in why.splitlines() if not _SOURCE_LINE.match(line)]
    reason = " ".join(" ".join(lines).split())
    if len(reason) > _MAX_MESSAGE:
        reason = reason[:_MAX_MESSAGE] + " …"
    return SequenceFault("bad_request", f"{what}: {reason}")
