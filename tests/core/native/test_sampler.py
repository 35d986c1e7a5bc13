"""Does the compiled sampler draw the very tokens of the reference?"""

import pytest
import torch
from deepinfer_core.config.kernel_cache import kernel_cache_folder
from deepinfer_core.interfaces.sampler import (
    DraftedRows,
    Sampler,
    SamplerOutputs,
    SamplerSpec,
    Verdicts,
)
from deepinfer_core.native import sampler as module
from deepinfer_core.native.sampler import CpuSampler
from deepinfer_core.reference.sampler import ReferenceSampler
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.sampler_settings import Settings, sampler_rows
from deepinfer_core.testing.seeds import seed_of

ALTERNATIVES = 5


@pytest.fixture
def generator(request: pytest.FixtureRequest) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(request))


@pytest.fixture(scope="module")
def sampler() -> CpuSampler:
    return CpuSampler(kernel_cache_folder())


def sample(
    component: Sampler,
    logits_RV: torch.Tensor,
    settings: list[Settings],
    allowed: list[list[int]] | None = None,
) -> SamplerOutputs:
    count, vocabulary = logits_RV.shape
    out = SamplerOutputs(
        token_R=torch.empty(count, dtype=torch.int64),
        logprob_R=torch.empty(count),
        processed_logprob_R=torch.empty(count),
        top_token_RA=torch.empty(count, ALTERNATIVES, dtype=torch.int64),
        top_logprob_RA=torch.empty(count, ALTERNATIVES),
        invalid_R=torch.empty(count, dtype=torch.bool),
    )
    spec = SamplerSpec(vocabulary=vocabulary, alternatives=ALTERNATIVES)
    plan = component.plan(spec, count)
    component.run(plan, logits_RV, sampler_rows(settings, allowed, "cpu"), out)
    return out


def check(
    component: Sampler,
    logits_RV: torch.Tensor,
    settings: list[Settings],
    allowed: list[list[int]] | None = None,
) -> None:
    got = sample(component, logits_RV, settings, allowed)
    want = sample(ReferenceSampler(), logits_RV, settings, allowed)
    for name in ("token_R", "logprob_R", "top_token_RA", "top_logprob_RA", "invalid_R"):
        assert_same_bits(getattr(got, name), getattr(want, name))
    # Both are fp64 sums, rounded to fp32: equal, or neighbours.
    finite = want.processed_logprob_R.isfinite()
    assert torch.equal(finite, got.processed_logprob_R.isfinite())
    off = (got.processed_logprob_R - want.processed_logprob_R)[finite].abs()
    assert bool((off <= 2.0**-23 * want.processed_logprob_R[finite].abs()).all())


def settings_of(generator: torch.Generator, count: int) -> list[Settings]:
    """Every combination of strong, weak and no truncation, at several temperatures."""

    def pick(values: list[float]) -> float:
        return values[int(torch.randint(0, len(values), (1,), generator=generator))]

    return [
        Settings(
            temperature=pick([0.0, 0.3, 0.8, 1.0, 2.5]),
            top_p=pick([1.0, 1.0, 0.95, 0.5, 0.01, 1e-9]),
            top_k=int(pick([-1, -1, 1, 2, 40, 1000])),
            min_p=pick([0.0, 0.0, 0.05, 0.9]),
            seed=int(torch.randint(-(2**62), 2**62, (1,), generator=generator)),
            position=int(torch.randint(0, 10**6, (1,), generator=generator)),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("spread", [0.0, 0.01, 1.0, 3.0, 40.0])
@pytest.mark.parametrize("vocabulary", [5, 63, 64, 65, 1000, 4096])
def test_tokens_are_those_of_the_reference(
    sampler: CpuSampler, vocabulary: int, spread: float, generator: torch.Generator
) -> None:
    # From equal logits to a law of one token; rounded, so that logits are equal here and there.
    logits_RV = spread * torch.randn(64, vocabulary, generator=generator)
    logits_RV[::2] = (8 * logits_RV[::2]).round() / 8
    check(sampler, logits_RV, settings_of(generator, 64))


@pytest.mark.parametrize("top_k", [1, 2, 29, 30, 31, 100])
@pytest.mark.parametrize("top_p", [0.0001, 0.2499999, 0.25, 0.2500001, 0.999999])
def test_truncation_ends_within_equal_logits_where_the_reference_ends_it(
    sampler: CpuSampler, top_k: int, top_p: float
) -> None:
    # Thirty equal logits, then zeros of both signs, then a tail of little weight.
    logits_V = torch.cat([torch.full((30,), 1.0), torch.zeros(40), torch.linspace(-1, -60, 30)])
    logits_V[30:60:2] = -0.0
    logits_V = logits_V[torch.randperm(100, generator=torch.Generator().manual_seed(3))]
    settings = [Settings(seed=seed, position=seed, top_p=top_p, top_k=top_k) for seed in range(300)]
    check(sampler, logits_V.expand(300, -1).contiguous(), settings)


def test_masks_rules_forced_tokens_and_bad_rows_are_treated_as_by_the_reference(
    sampler: CpuSampler, generator: torch.Generator
) -> None:
    logits_RV = 3 * torch.randn(24, 200, generator=generator, dtype=torch.float64)
    logits_RV[:, 50:60] = -torch.inf
    settings = [
        Settings(
            seed=row,
            temperature=row % 3,
            top_p=0.9,
            forced=row if row % 5 == 0 else -1,
            bias={row: 4.0},
            seen={row + 1: 2},
            presence=1.0,
            repetition=1.3,
        )
        for row in range(24)
    ]
    allowed = [list(range(row, 200)) for row in range(24)]
    check(sampler, logits_RV, settings, allowed)
    logits_RV[3, 7], logits_RV[4, 9], logits_RV[5] = torch.nan, torch.inf, -torch.inf
    allowed[6] = []
    got = sample(sampler, logits_RV, settings, allowed)
    want = sample(ReferenceSampler(), logits_RV, settings, allowed)
    assert got.invalid_R.tolist() == [row in (3, 4, 5, 6) for row in range(24)]
    good = ~want.invalid_R
    assert_same_bits(got.token_R[good], want.token_R[good])


def test_rows_in_several_tiles_are_drawn_as_in_one(
    sampler: CpuSampler, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits_RV = 3 * torch.randn(11, 100, generator=generator)
    settings = settings_of(generator, 11)
    whole = sample(sampler, logits_RV, settings)
    monkeypatch.setattr(module, "_TILE_ELEMENTS", 400)
    parts = sample(sampler, logits_RV, settings)
    for name in ("token_R", "logprob_R", "processed_logprob_R", "top_token_RA", "invalid_R"):
        assert_same_bits(getattr(parts, name), getattr(whole, name))


def verify(
    component: Sampler, logits_RV: torch.Tensor, settings: list[Settings], drafted: DraftedRows
) -> tuple[SamplerOutputs, Verdicts]:
    count, vocabulary = logits_RV.shape
    numbers = torch.empty(3, count)
    out = SamplerOutputs(
        token_R=torch.empty(count, dtype=torch.int64),
        logprob_R=numbers[0],
        processed_logprob_R=numbers[1],
        top_token_RA=torch.empty(count, ALTERNATIVES, dtype=torch.int64),
        top_logprob_RA=torch.empty(count, ALTERNATIVES),
        invalid_R=torch.empty(count, dtype=torch.bool),
    )
    verdicts = Verdicts(accepted_R=torch.empty(count, dtype=torch.bool), overlap_R=numbers[2])
    plan = component.plan_ratio(
        SamplerSpec(vocabulary=vocabulary, alternatives=ALTERNATIVES), count
    )
    rows = sampler_rows(settings, None, "cpu")
    component.verify(plan, logits_RV, rows, drafted, out, verdicts)
    return out, verdicts


def drawn(
    component: Sampler, logits_RV: torch.Tensor, settings: list[Settings]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Drafts of all rows, the last of which share the padding row; and the laws."""
    count, vocabulary = logits_RV.shape
    law_PV = torch.zeros(count, vocabulary, dtype=torch.int32)
    token_R, law_row_R = torch.empty(count, dtype=torch.int64), torch.arange(count)
    law_row_R[-2:] = 0
    plan = component.plan_ratio(SamplerSpec(vocabulary=vocabulary, alternatives=0), count)
    rows = sampler_rows(settings, None, "cpu")
    component.draw_drafts(plan, logits_RV, rows, law_row_R, law_PV, token_R)
    return law_PV[1:], token_R


@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0])
@pytest.mark.parametrize("vocabulary", [5, 64, 4096])
def test_drafts_and_verdicts_are_those_of_the_reference(
    sampler: CpuSampler, vocabulary: int, spread: float, generator: torch.Generator
) -> None:
    """Targets near their drafts, so that many are accepted; some rows have none, some no law."""
    count = 256
    logits_RV = 2 * torch.randn(count, vocabulary, generator=generator)
    settings = settings_of(generator, count)
    law_PV, token_R = drawn(sampler, logits_RV, settings)
    for got, want in zip(
        (law_PV, token_R), drawn(ReferenceSampler(), logits_RV, settings), strict=True
    ):
        assert_same_bits(got, want)
    target_RV = logits_RV + spread * torch.randn(count, vocabulary, generator=generator)
    law_row_R = (torch.arange(count) - 1).clamp(-1, count - 3)
    law_row_R[::7] = -1
    token_R[::5] = -1
    for laws in (law_PV, None):
        drafted = DraftedRows(draft_R=token_R, law_row_R=law_row_R, law_PV=laws)
        got, verdicts = verify(sampler, target_RV, settings, drafted)
        want, expected = verify(ReferenceSampler(), target_RV, settings, drafted)
        assert_same_bits(got.token_R, want.token_R)
        assert_same_bits(got.logprob_R, want.logprob_R)
        assert_same_bits(verdicts.accepted_R, expected.accepted_R)
        assert_same_bits(verdicts.overlap_R, expected.overlap_R)
        assert bool(verdicts.accepted_R.any())
        assert not bool(verdicts.accepted_R.all())


def test_forced_tokens_are_verified_as_by_the_reference(
    sampler: CpuSampler, generator: torch.Generator
) -> None:
    logits_RV = torch.randn(30, 12, generator=generator)
    settings = [Settings(seed=row, forced=row % 4 - 1, temperature=row % 2) for row in range(30)]
    draft_R = torch.arange(30) % 5 - 1
    drafted = DraftedRows(draft_R=draft_R, law_row_R=torch.full((30,), -1), law_PV=None)
    got, verdicts = verify(sampler, logits_RV, settings, drafted)
    want, expected = verify(ReferenceSampler(), logits_RV, settings, drafted)
    assert_same_bits(got.token_R, want.token_R)
    assert_same_bits(verdicts.accepted_R, expected.accepted_R)
    assert 0 < int(verdicts.accepted_R.sum()) < 30


def test_drafts_in_several_tiles_are_verified_as_in_one(
    sampler: CpuSampler, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits_RV = torch.randn(11, 100, generator=generator)
    settings = settings_of(generator, 11)
    whole = drawn(sampler, logits_RV, settings)
    drafted = DraftedRows(
        draft_R=whole[1], law_row_R=torch.arange(11).clamp_max(8), law_PV=whole[0]
    )
    verdicts = verify(sampler, logits_RV, settings, drafted)
    monkeypatch.setattr(module, "_TILE_ELEMENTS", 400)
    for got, want in zip(drawn(sampler, logits_RV, settings), whole, strict=True):
        assert_same_bits(got, want)
    parts = verify(sampler, logits_RV, settings, drafted)
    assert_same_bits(parts[0].token_R, verdicts[0].token_R)
    assert_same_bits(parts[1].accepted_R, verdicts[1].accepted_R)
