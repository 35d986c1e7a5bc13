"""Does the sampler keep its contract when its kernels are interpreted, and draw the twin's tokens?

A row takes a twentieth of a second. Tests that draw hundreds of times are left to a device.
"""

from dataclasses import fields, replace

import pytest
import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.sampler import Sampler, SamplerOutputs, SamplerRows, SamplerSpec
from deepinfer_core.reference.sampler import ReferenceSampler
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts import SamplerContract
from deepinfer_core.testing.contracts.sampler_settings import Settings, sampler_rows
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.tiles import InterpretedKernels
from deepinfer_core.testing.tolerance import assert_within
from deepinfer_nvidia.sampler.tilelang import TileLangSampler

KERNELS = InterpretedKernels()
LEFT_TO_A_DEVICE = {
    "test_golden_logits_keep_their_golden_tokens",
    "test_mass_equal_to_top_p_keeps_one_more_token",
    "test_ties_at_the_edge_go_to_lower_ids",
    "test_a_masked_token_is_never_drawn",
    "test_a_token_without_probability_is_never_drawn",
    "test_no_bias_brings_a_masked_token_back",
    "test_bias_and_penalties_of_a_row_do_not_depend_on_its_neighbours",
    "test_a_token_depends_on_its_own_row_only",
    "test_another_seed_or_position_draws_anew",
    "test_draws_are_fine_enough_for_a_large_vocabulary",
    "test_many_draws_follow_the_law",
}
TOLERANCE = 2e-6
"""As the contract's."""


class TestSampler(SamplerContract):
    """What takes few rows."""

    @pytest.fixture
    def component(self) -> TileLangSampler:
        return TileLangSampler(KERNELS, "cpu")

    @pytest.fixture(autouse=True)
    def leave_to_a_device(self, request: pytest.FixtureRequest) -> None:
        if request.function.__name__ in LEFT_TO_A_DEVICE:
            pytest.skip("hundreds of rows")


@pytest.fixture
def generator(request: pytest.FixtureRequest) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(request))


def run(
    component: Sampler, logits_RV: torch.Tensor, rows: SamplerRows, alternatives: int = 0
) -> SamplerOutputs:
    count, vocabulary = logits_RV.shape
    out = SamplerOutputs(
        token_R=torch.full((count,), -9),
        logprob_R=torch.zeros(count),
        processed_logprob_R=torch.zeros(count),
        top_token_RA=torch.full((count, alternatives), -9),
        top_logprob_RA=torch.zeros(count, alternatives),
        invalid_R=torch.zeros(count, dtype=torch.bool),
    )
    plan = component.plan(SamplerSpec(vocabulary=vocabulary, alternatives=alternatives), count)
    component.run(plan, logits_RV, rows, out)
    return out


def assert_like_the_twin(logits_RV: torch.Tensor, rows: SamplerRows, alternatives: int = 0) -> None:
    """The same tokens; log-probabilities within the contract's tolerance."""
    got = run(TileLangSampler(KERNELS, "cpu"), logits_RV, rows, alternatives)
    want = run(ReferenceSampler(), logits_RV, rows, alternatives)
    for name in ("token_R", "invalid_R", "top_token_RA"):
        assert_same_bits(getattr(got, name), getattr(want, name))
    for name in ("logprob_R", "processed_logprob_R", "top_logprob_RA"):
        assert_within(getattr(got, name), getattr(want, name).double(), TOLERANCE)


@pytest.mark.parametrize(
    "settings",
    [
        Settings(top_k=1),
        Settings(top_k=255),
        Settings(top_k=256),
        Settings(top_k=257),
        Settings(top_p=0.5),
        Settings(top_p=0.999),
        Settings(temperature=0.25, top_p=0.75),
        Settings(min_p=0.25),
        Settings(min_p=0.001),
        Settings(top_k=600, top_p=0.875, min_p=0.0001),
        Settings(),
        Settings(temperature=0),
        Settings(forced=3, top_k=300),
    ],
    ids=repr,
)
def test_tokens_are_those_of_the_twin(settings: Settings, generator: torch.Generator) -> None:
    """More than a segment, short and long prefixes, on rows of few and of many distinct logits."""
    logits_RV = 2 * torch.randn(3, 8250, generator=generator)
    logits_RV[1] = logits_RV[1].round()
    rows = [replace(settings, seed=row - 1, position=50 * row) for row in range(3)]
    assert_like_the_twin(logits_RV, sampler_rows(rows, None, "cpu"))


@pytest.mark.parametrize("equal", [511, 512, 513, 1300])
def test_more_equal_logits_than_candidates_are_cut_by_their_ids(equal: int) -> None:
    """A few tokens short of all, by number and by weight; alternatives come from the tie, too."""
    logits_RV = torch.full((3, 1400), -9.0)
    logits_RV[:, :equal] = 1.0
    logits_RV[:, 1350] = 1.25
    rows = [Settings(top_k=200), Settings(top_p=0.75), Settings(top_k=equal - 3, top_p=0.9375)]
    assert_like_the_twin(logits_RV, sampler_rows(rows, None, "cpu"), alternatives=5)


def test_rows_that_rules_change_are_worked_on_in_tiles(
    monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    """Memory for two rows at a time; greedy and drawn ones."""
    monkeypatch.setattr("deepinfer_nvidia.sampler.tilelang._ADJUSTED_BYTES", 2 * 8 * 70)
    settings = [
        Settings(seed=row, temperature=row % 2, bias={row: 2.5}, seen={row: 1}, presence=0.5)
        for row in range(5)
    ]
    logits_RV = torch.randn(5, 70, generator=generator)
    rows = sampler_rows(settings, [[*range(row, 70)] for row in range(5)], "cpu")
    assert_like_the_twin(logits_RV, rows, alternatives=2)


def test_masked_rows_without_rules_keep_the_precision_of_their_logits(
    generator: torch.Generator,
) -> None:
    logits_RV = torch.randn(4, 66, generator=generator)
    rows = sampler_rows(
        [Settings(seed=row, temperature=row) for row in range(4)],
        [[*range(row, 66, 3), 65] for row in range(4)],
        "cpu",
    )
    assert_like_the_twin(logits_RV, rows)


def test_no_rows_are_no_work() -> None:
    out = run(TileLangSampler(KERNELS, "cpu"), torch.zeros(0, 50), sampler_rows([], None, "cpu"), 2)
    assert [getattr(out, field.name).shape[0] for field in fields(out)] == [0] * 6


def test_logits_with_gaps_are_refused() -> None:
    rows = sampler_rows([Settings()] * 2, None, "cpu")
    with pytest.raises(NotSupported, match="strides"):
        run(TileLangSampler(KERNELS, "cpu"), torch.zeros(2, 100)[:, :50], rows)


def test_logits_that_were_not_planned_for_are_refused() -> None:
    component = TileLangSampler(KERNELS, "cpu")
    plan = component.plan(SamplerSpec(vocabulary=50), 1)
    out = run(component, torch.zeros(2, 50), sampler_rows([Settings()] * 2, None, "cpu"))
    with pytest.raises(NotSupported, match="plan"):
        component.run(plan, torch.zeros(2, 50), sampler_rows([Settings()] * 2, None, "cpu"), out)


@pytest.mark.parametrize(("vocabulary", "alternatives"), [(4, 5), ((1 << 22) + 1, 0)])
def test_what_the_kernels_do_not_have_is_refused(vocabulary: int, alternatives: int) -> None:
    spec = SamplerSpec(vocabulary=vocabulary, alternatives=alternatives)
    with pytest.raises(NotSupported):
        TileLangSampler(KERNELS, "cpu").plan(spec, 1)
