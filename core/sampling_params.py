"""How tokens are to be chosen, and what is told of the choice: part of core/api.py's vocabulary."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """What a generation must look like: a JSON schema (its JSON text) or a Lark grammar.

    It holds from the start, or, with `begin`, from where the model has written that text followed
    by that control token (Muse: `(" to=user", <|message|>)`); before that anything may be written.
    Once the grammar is complete the generation must stop.
    """

    kind: Literal["json_schema", "lark"]
    grammar: str
    begin: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to choose tokens. `temperature` 0 is greedy; `seed` None draws one; `max_tokens` ≥ 1.

    `num_logprobs` None asks for none, 0 for those of the chosen tokens, n for the n likeliest too.
    """

    max_tokens: int = 512
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    num_logprobs: int | None = None
    constraint: Constraint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprobs:
    """Natural logarithms of probabilities at temperature 1, before any filter: of the token that
    was chosen, and of the likeliest ones, in falling order, as (token id, logprob)."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()
