"""Does the reference sampler invert the running sum of integer weights exactly?"""

import math

import pytest
import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.sampler import SamplerOutputs, SamplerRows, SamplerSpec
from deepinfer_core.reference.laws import invert
from deepinfer_core.reference.random_numbers import uniform_bits
from deepinfer_core.reference.sampler import ReferenceSampler
from deepinfer_core.testing.oracles import sampling as oracle

ONE = 1 << 31


def settings(count: int, **values: float) -> SamplerRows:
    def column(name: str, default: float, dtype: torch.dtype) -> torch.Tensor:
        return torch.full((count,), values.get(name, default), dtype=dtype)

    return SamplerRows(
        temperature_R=column("temperature", 1.0, torch.float32),
        top_p_R=column("top_p", 1.0, torch.float32),
        top_k_R=column("top_k", -1, torch.int64),
        min_p_R=column("min_p", 0.0, torch.float32),
        seed_R=column("seed", 3, torch.int64),
        position_R=torch.arange(count),
        forced_R=column("forced", -1, torch.int64),
    )


def sample(logits: torch.Tensor, rows: SamplerRows) -> SamplerOutputs:
    sampler, count = ReferenceSampler(), len(logits)
    out = SamplerOutputs(
        token_R=torch.empty(count, dtype=torch.int64),
        logprob_R=torch.empty(count),
        processed_logprob_R=torch.empty(count),
        top_token_RA=torch.empty(count, 0, dtype=torch.int64),
        top_logprob_RA=torch.empty(count, 0),
        invalid_R=torch.empty(count, dtype=torch.bool),
    )
    plan = sampler.plan(SamplerSpec(vocabulary=logits.shape[1]), count)
    sampler.run(plan, logits, rows, out)
    return out


def draw_in_integers(logits: list[float], seed: int, position: int) -> int:
    """The rule of the module, with Python's integers of any size."""
    weights = [math.floor(math.exp(x) * ONE) for x in oracle.log_softmax(logits)]
    bits = int(uniform_bits(torch.tensor([seed]), torch.tensor([position]), 0))
    point, running = bits * sum(weights) >> 53, 0
    for token, weight in enumerate(weights):
        running += weight
        if running > point:
            return token
    raise AssertionError("the point lies behind the last token")


@pytest.mark.parametrize("seed", [3, -1, 2**62])
def test_a_draw_is_the_first_token_whose_running_weight_passes_the_point(
    seed: int, generator: torch.Generator
):
    logits = torch.randn(50, generator=generator, dtype=torch.float64)
    out = sample(logits.expand(300, -1), settings(300, seed=seed))
    want = [draw_in_integers(logits.tolist(), seed, position) for position in range(300)]
    assert out.token_R.tolist() == want


@pytest.mark.parametrize(
    ("bits", "token"),
    [(0, 1), (2**52 - 1, 1), (2**52, 3), (2**53 - 1, 3)],
)
def test_a_point_on_the_edge_belongs_to_the_next_token_with_weight(bits: int, token: int):
    # Weights 0, 1, 0, 1, 0: the points are 0 and 1, whose running weights are 0 0, 1 1 and 2 2.
    weights = torch.tensor([[0, 1, 0, 1, 0]])
    assert invert(weights, torch.tensor([bits])).tolist() == [token]


def test_the_point_is_exact_for_the_largest_total():
    # Rounded in fp64, the last number below one times an odd total is the total itself.
    total = 2**31 - 1
    weights = torch.tensor([[total - 1, 1, 0]])
    assert invert(weights, torch.tensor([2**53 - 1])).tolist() == [1]


@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 33])
def test_tiles_of_rows_are_sampled_alike(rows: int, generator: torch.Generator):
    logits = torch.randn(40, 30, generator=generator)
    together = sample(logits, settings(40))
    some = sample(logits[:rows], settings(rows))
    assert some.token_R.tolist() == together.token_R[:rows].tolist()


@pytest.mark.parametrize("top_p", [0.5, 0.25, 0.75])
def test_mass_equal_to_top_p_lets_one_more_token_in(top_p: float):
    # Four equal tokens: their weights are 2^29 each, and top-p keeps what exceeds its share.
    tokens = sample(torch.zeros(200, 4), settings(200, top_p=top_p)).token_R
    assert set(tokens.tolist()) == set(range(int(4 * top_p) + 1))


def test_top_p_is_measured_before_top_k():
    # After top-k = 2 the first token alone would have 73 %, more than top-p; before, it has 53 %.
    logits = torch.tensor([[2.0, 1, 1, 0]]).expand(200, -1)
    tokens = sample(logits, settings(200, top_p=0.6, top_k=2)).token_R
    assert set(tokens.tolist()) == {0, 1}


def test_survivors_share_the_whole_law():
    logits = torch.tensor([[2.0, 1, 1, 0]])
    out = sample(logits, settings(1, top_k=1))
    assert out.processed_logprob_R.tolist() == [0]


def test_more_alternatives_than_tokens_are_refused_when_planned():
    with pytest.raises(NotSupported, match="5 alternatives, found 4 tokens"):
        ReferenceSampler().plan(SamplerSpec(vocabulary=4, alternatives=5), 1)
