import pytest
import torch

from sensorium.core.api import SamplingParams
from sensorium.core.sampling import check_sampling, draw, greedy
from sensorium.core.span import SequenceFault


def _support(logits: torch.Tensor, params: SamplingParams, draws: int = 300) -> set[int]:
    generator = torch.Generator().manual_seed(0)
    return {draw(logits, params, generator) for _ in range(draws)}


LOGITS = torch.tensor([0.1, 0.4, 0.2, 0.3]).log()


def test_greedy_takes_the_best_and_flags_rows_that_are_not_finite() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [0.0, torch.nan, 1.0], [torch.inf, 0.0, 1.0]])
    ids, finite = greedy(logits)
    assert ids[0] == 1
    assert finite.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (SamplingParams(temperature=1.0), {0, 1, 2, 3}),
        (SamplingParams(temperature=1.0, top_k=2), {1, 3}),
        (SamplingParams(temperature=1.0, top_p=0.3), {1}),
        (SamplingParams(temperature=1.0, top_p=0.45), {1, 3}),
        (SamplingParams(temperature=1.0, min_p=0.6), {1, 3}),
        (SamplingParams(temperature=1.0, top_k=3, top_p=0.7), {1, 3}),
        (SamplingParams(temperature=0.01), {1}),
    ],
)
def test_only_the_allowed_ids_are_drawn(params: SamplingParams, expected: set[int]) -> None:
    assert _support(LOGITS, params) == expected


@pytest.mark.parametrize("min_p", [0.0, 0.01])
def test_draws_follow_the_probabilities(min_p: float) -> None:
    generator = torch.Generator().manual_seed(0)
    params = SamplingParams(temperature=1.0, min_p=min_p)
    drawn = [draw(LOGITS, params, generator) for _ in range(4_000)]
    for token_id, probability in enumerate((0.1, 0.4, 0.2, 0.3)):
        assert abs(drawn.count(token_id) / 4_000 - probability) < 0.03


def test_an_id_without_probability_is_never_drawn() -> None:
    logits = torch.full((5,), -torch.inf)
    logits[[1, 3]] = 0.0
    assert _support(logits, SamplingParams(temperature=1.0)) == {1, 3}


def test_nucleus_may_reach_past_the_first_candidates() -> None:
    flat = torch.zeros(5_000)
    drawn = _support(flat, SamplingParams(temperature=1.0, top_p=0.9), draws=1_500)
    assert len(drawn) > 1_000


def test_same_seed_draws_the_same() -> None:
    params = SamplingParams(temperature=1.0)
    one, other = (torch.Generator().manual_seed(7) for _ in range(2))
    assert [draw(LOGITS, params, one) for _ in range(20)] == [
        draw(LOGITS, params, other) for _ in range(20)
    ]


@pytest.mark.parametrize(
    "bad",
    [
        SamplingParams(max_tokens=0),
        SamplingParams(temperature=-1.0),
        SamplingParams(temperature=float("nan")),
        SamplingParams(top_p=0.0),
        SamplingParams(top_p=1.5),
        SamplingParams(top_k=-1),
        SamplingParams(min_p=2.0),
        SamplingParams(num_logprobs=-1),
        SamplingParams(num_logprobs=21),
    ],
)
def test_meaningless_values_are_refused(bad: SamplingParams) -> None:
    with pytest.raises(SequenceFault, match=r"must be"):
        check_sampling(bad)
