"""Does the sampler verify drafts as its twin does when its kernels are interpreted?

The contract's tests of laws draw up to a million times and are left to a device; here every row is
compared with ``core.reference``.
"""

from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from deepinfer_core.interfaces.sampler import (
    DraftedRows,
    Sampler,
    SamplerOutputs,
    SamplerRows,
    SamplerSpec,
    Verdicts,
)
from deepinfer_core.reference.sampler import ReferenceSampler
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts import RatioRuleContract
from deepinfer_core.testing.contracts.sampler_settings import Settings, sampler_rows
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.tiles import InterpretedKernels
from deepinfer_core.testing.tolerance import assert_within, roundoff
from deepinfer_nvidia.sampler.tilelang import TileLangSampler

KERNELS = InterpretedKernels()
LEFT_TO_A_DEVICE = {
    "test_a_row_without_a_draft_is_drawn_as_ever",
    "test_many_tokens_follow_the_law_of_decoding_without_drafts",
    "test_the_overlap_is_the_share_of_accepted_drafts",
    "test_an_accepted_draft_is_the_token_and_a_rejected_one_is_not",
    "test_drafts_of_the_same_law_are_always_accepted",
    "test_drafts_differ_from_what_the_same_position_draws",
    "test_a_masked_draft_is_never_accepted_and_no_masked_token_takes_its_place",
    "test_log_probabilities_are_of_the_law_of_the_row",
}
VOCABULARY = 8250
"""More than a segment."""

ALL = [
    Settings(),
    Settings(temperature=0),
    Settings(top_k=40),
    Settings(top_k=300, top_p=0.9375),
    Settings(top_p=0.5),
    Settings(temperature=0.5, min_p=0.0625),
    Settings(temperature=2, top_k=1),
    Settings(forced=7, top_k=30),
]


class TestRatioRule(RatioRuleContract):
    """What takes few rows."""

    left: ClassVar[set[str]] = LEFT_TO_A_DEVICE

    @pytest.fixture
    def component(self) -> TileLangSampler:
        return TileLangSampler(KERNELS, "cpu")

    @pytest.fixture(autouse=True)
    def leave_to_a_device(self, request: pytest.FixtureRequest) -> None:
        if request.function.__name__ in self.left:
            pytest.skip(
                "thousands of rows, for which an interpreter is too slow: tests/nvidia/device"
            )


@pytest.fixture
def generator(request: pytest.FixtureRequest) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(request))


def settings_of(rows: list[Settings], allowed: list[list[int]] | None = None) -> SamplerRows:
    """Each row with a seed and a position of its own."""
    own = [replace(one, seed=n - 1, position=50 * n) for n, one in enumerate(rows)]
    return sampler_rows(own, allowed, "cpu")


def drafted_by(
    component: Sampler, logits_RV: torch.Tensor, rows: SamplerRows, law_row_R: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Drafts and their laws; rows of laws that nobody asked for keep what they had."""
    count, vocabulary = logits_RV.shape
    law_PV = torch.full((int(law_row_R.max()) + 2, vocabulary), -7, dtype=torch.int32)
    token_R = torch.full((count,), -9)
    plan = component.plan_ratio(SamplerSpec(vocabulary=vocabulary), count)
    component.draw_drafts(plan, logits_RV, rows, law_row_R, law_PV, token_R)
    return token_R, law_PV


def verified_by(
    component: Sampler,
    logits_RV: torch.Tensor,
    rows: SamplerRows,
    drafted: DraftedRows,
    alternatives: int = 0,
) -> tuple[SamplerOutputs, Verdicts]:
    count, vocabulary = logits_RV.shape
    out = SamplerOutputs(
        token_R=torch.full((count,), -9),
        logprob_R=torch.zeros(count),
        processed_logprob_R=torch.zeros(count),
        top_token_RA=torch.full((count, alternatives), -9),
        top_logprob_RA=torch.zeros(count, alternatives),
        invalid_R=torch.zeros(count, dtype=torch.bool),
    )
    verdicts = Verdicts(
        accepted_R=torch.zeros(count, dtype=torch.bool), overlap_R=torch.full((count,), -9.0)
    )
    spec = SamplerSpec(vocabulary=vocabulary, alternatives=alternatives)
    component.verify(component.plan_ratio(spec, count), logits_RV, rows, drafted, out, verdicts)
    return out, verdicts


def assert_verified_like_the_twin(
    logits_RV: torch.Tensor, rows: SamplerRows, drafted: DraftedRows, alternatives: int = 0
) -> Verdicts:
    """The same verdicts and tokens; log-probabilities within the contract's tolerance."""
    got, verdicts = verified_by(
        TileLangSampler(KERNELS, "cpu"), logits_RV, rows, drafted, alternatives
    )
    want, wanted = verified_by(ReferenceSampler(), logits_RV, rows, drafted, alternatives)
    assert_same_bits(verdicts.accepted_R, wanted.accepted_R)
    for name in ("token_R", "invalid_R", "top_token_RA"):
        assert_same_bits(getattr(got, name), getattr(want, name))
    for name in ("logprob_R", "processed_logprob_R", "top_logprob_RA"):
        assert_within(getattr(got, name), getattr(want, name).double(), 2e-6)
    # One quotient of the same whole numbers, and its distance from 1, rounded to fp32.
    assert_within(verdicts.overlap_R, wanted.overlap_R.double(), 2 * roundoff(torch.float32))
    return verdicts


@pytest.mark.parametrize("settings", ALL[:-1], ids=repr)
def test_drafts_and_their_laws_are_those_of_the_twin(
    settings: Settings, generator: torch.Generator
) -> None:
    logits_RV = 2 * torch.randn(2, VOCABULARY, generator=generator)
    logits_RV[1] = logits_RV[1].round()
    rows, law_row_R = settings_of([settings] * 2), torch.tensor([3, 1])
    got = drafted_by(TileLangSampler(KERNELS, "cpu"), logits_RV, rows, law_row_R)
    want = drafted_by(ReferenceSampler(), logits_RV, rows, law_row_R)
    assert_same_bits(got[0], want[0])
    # A weight may be one off where a whole number lies between two roundings of its probability.
    assert int((got[1].long() - want[1]).abs().max()) <= 1
    assert int((got[1] != want[1]).sum()) <= 1
    assert bool((got[1][[0, 2, 4]] == -7).all())


@pytest.mark.parametrize("settings", ALL, ids=repr)
def test_verdicts_are_those_of_the_twin(settings: Settings, generator: torch.Generator) -> None:
    """Two drafts of another law, one of the same, none, and a certain one."""
    logits_RV = 2 * torch.randn(5, VOCABULARY, generator=generator)
    other_RV = logits_RV + 0.7 * torch.randn(5, VOCABULARY, generator=generator)
    other_RV[2] = logits_RV[2]
    rows = settings_of([settings] * 5)
    number_R = torch.arange(5)
    draft_R, law_PV = drafted_by(ReferenceSampler(), other_RV, rows, number_R)
    draft_R[3], draft_R[4] = -1, int(logits_RV[4].argmax())
    drafted = DraftedRows(
        draft_R=draft_R, law_row_R=number_R.masked_fill(number_R >= 3, -1), law_PV=law_PV
    )
    verdicts = assert_verified_like_the_twin(logits_RV, rows, drafted)
    if settings.forced < 0:
        assert bool(verdicts.accepted_R[2])
    assert not bool(verdicts.accepted_R[3])


@pytest.mark.parametrize("settings", [ALL[0], ALL[3]], ids=repr)
def test_a_row_without_a_draft_has_the_bits_of_an_ordinary_draw(
    settings: Settings, generator: torch.Generator
) -> None:
    """Whether it is pending behind the candidates or not."""
    logits_RV = 2 * torch.randn(1, VOCABULARY, generator=generator)
    rows, component = settings_of([settings]), TileLangSampler(KERNELS, "cpu")
    none = DraftedRows(draft_R=torch.tensor([-1]), law_row_R=torch.tensor([-1]))
    out, verdicts = verified_by(component, logits_RV, rows, none)
    plain = replace(out, token_R=out.token_R + 1, logprob_R=torch.zeros(1))
    component.run(component.plan(SamplerSpec(vocabulary=VOCABULARY), 1), logits_RV, rows, plain)
    assert_same_bits(out.token_R, plain.token_R)
    assert_same_bits(out.logprob_R, plain.logprob_R)
    assert not bool(verdicts.accepted_R)
    assert not bool(verdicts.overlap_R)


def test_more_rows_than_a_grid_may_have_take_several_launches(
    monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    """Both to draw drafts and to verify them."""
    monkeypatch.setattr("deepinfer_nvidia.sampler.tilelang._MOST_ROWS", 2)
    logits_RV, other_RV = 2 * torch.randn(2, 5, 40, generator=generator)
    rows, law_row_R = settings_of([Settings()] * 5), torch.tensor([3, 1, 4, 0, 2])
    got = drafted_by(TileLangSampler(KERNELS, "cpu"), other_RV, rows, law_row_R)
    want = drafted_by(ReferenceSampler(), other_RV, rows, law_row_R)
    assert_same_bits(got[0], want[0])
    assert_same_bits(got[1], want[1])
    drafted = DraftedRows(draft_R=got[0], law_row_R=law_row_R, law_PV=got[1])
    assert_verified_like_the_twin(logits_RV, rows, drafted)


def test_certain_drafts_need_no_laws(generator: torch.Generator) -> None:
    """Of a match that was found in the text."""
    logits_RV = 3 * torch.randn(6, 300, generator=generator)
    best_R = logits_RV.argmax(-1)
    drafted = DraftedRows(
        draft_R=torch.where(torch.arange(6) % 2 == 0, best_R, best_R - 1).clamp_min(0),
        law_row_R=torch.full((6,), -1),
    )
    rows = settings_of([Settings(temperature=n % 3) for n in range(6)])
    assert_verified_like_the_twin(logits_RV, rows, drafted, alternatives=3)


def test_rows_are_verified_in_tiles_where_their_laws_need_more_memory_than_there_is(
    monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    """Two at a time, masked and with rules; each looks up its own draft and law."""
    monkeypatch.setattr("deepinfer_nvidia.sampler.tilelang._LAW_BYTES", 2 * 4 * 70)
    settings = [
        Settings(temperature=n % 2 + 0.5, bias={n: 2.5}, seen={n: 1}, presence=0.5)
        for n in range(5)
    ]
    logits_RV = torch.randn(5, 70, generator=generator)
    law_PV = torch.randint(0, 1 << 20, (6, 70), generator=generator, dtype=torch.int32)
    drafted = DraftedRows(
        draft_R=torch.randint(0, 70, (5,), generator=generator),
        law_row_R=torch.tensor([5, 3, 4, 1, 2]),
        law_PV=law_PV,
    )
    rows = settings_of(settings, [[*range(n, 70)] for n in range(5)])
    assert_verified_like_the_twin(logits_RV, rows, drafted)


def test_an_invalid_row_gives_a_draft_whose_law_is_certain(generator: torch.Generator) -> None:
    logits_RV = torch.randn(3, 70, generator=generator)
    logits_RV[1, 3] = torch.nan
    rows = settings_of([Settings()] * 3)
    token_R, law_PV = drafted_by(
        TileLangSampler(KERNELS, "cpu"), logits_RV, rows, torch.tensor([0, 1, 2])
    )
    token = int(token_R[1])
    assert law_PV[1].nonzero().tolist() == [[token]]
    assert int(law_PV[1, token]) > 0
