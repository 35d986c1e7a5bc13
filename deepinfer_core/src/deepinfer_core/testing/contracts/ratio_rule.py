"""Does a sampler that verifies drafts by the ratio rule leave the law of its tokens as it is?

For samplers that have the rule; it comes on top of ``SamplerContract``.

Shapes: R rows, V vocabulary, P rows of kept laws.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

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
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.sampler_settings import Settings
from deepinfer_core.testing.contracts.sampler_suite import TOLERANCE, SamplerSuite
from deepinfer_core.testing.oracles import sampling as oracle
from deepinfer_core.testing.tolerance import assert_within

__all__ = ["RatioRuleContract"]

LOGITS = (0.0, 1.5, -1.0, 0.5, 1.5, -2.0, 1.0, 0.25)
OTHER = (1.0, 0.0, -0.5, 2.0, -1.0, 1.0, 0.0, 0.0)

DRAFT_SHIFT = 1_000_000_007
"""Between seeds of tokens and of drafts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A target and a drafter.

    Attributes:
        settings: of the target.
        drafter: logits; None: every draft is the last token, for certain.
        draws: of a test of the law.
    """

    settings: Settings
    drafter: tuple[float, ...] | None = OTHER
    draws: int = 1 << 17


CASES = {
    "other law": Case(settings=Settings(seed=11), draws=1 << 20),
    "same law": Case(settings=Settings(seed=12), drafter=LOGITS),
    "top-p": Case(settings=Settings(seed=13, top_p=0.8)),
    "top-k and min-p": Case(
        settings=Settings(seed=-1, top_k=5, min_p=0.05, top_p=0.9), draws=1 << 20
    ),
    "no common token": Case(settings=Settings(seed=14, top_k=1), drafter=(0.0, -99.0, *[0.0] * 6)),
    "certain": Case(settings=Settings(seed=15), drafter=None),
    "certain, top-p": Case(
        settings=Settings(seed=16, top_p=0.8, temperature=1.3), drafter=None, draws=1 << 20
    ),
}


class Verified(NamedTuple):
    """What became of rows."""

    drafted: DraftedRows
    out: SamplerOutputs
    verdicts: Verdicts


class RatioRuleContract(SamplerSuite):
    """Tests of verification."""

    def drafts(
        self, component: Sampler, drafter: tuple[float, ...] | None, rows: SamplerRows
    ) -> DraftedRows:
        """One draft for each row, with a law of its own."""
        count = rows.seed_R.shape[0]
        number_R = torch.arange(count, device=self.device)
        if drafter is None:
            certain_R = torch.full_like(number_R, len(LOGITS) - 1)
            return DraftedRows(draft_R=certain_R, law_row_R=torch.full_like(number_R, -1))
        law_PV = torch.zeros(count, len(drafter), dtype=torch.int32, device=self.device)
        token_R = torch.empty_like(number_R)
        settings = _changed(rows, seed_R=rows.seed_R + DRAFT_SHIFT)
        plan = component.plan_ratio(SamplerSpec(vocabulary=len(drafter)), count)
        logits_RV = self._logits(drafter, count)
        component.draw_drafts(plan, logits_RV, settings, number_R, law_PV, token_R)
        return DraftedRows(draft_R=token_R, law_row_R=number_R, law_PV=law_PV)

    def verified(
        self,
        component: Sampler,
        logits_RV: torch.Tensor,
        rows: SamplerRows,
        drafted: DraftedRows,
    ) -> Verified:
        """Verify; logits are read only."""
        count, vocabulary = logits_RV.shape
        numbers = torch.empty(3, count, device=self.device)
        out = SamplerOutputs(
            token_R=torch.empty(count, dtype=torch.int64, device=self.device),
            logprob_R=numbers[0],
            processed_logprob_R=numbers[1],
            top_token_RA=torch.empty(count, 0, dtype=torch.int64, device=self.device),
            top_logprob_RA=torch.empty(count, 0, device=self.device),
            invalid_R=torch.empty(count, dtype=torch.bool, device=self.device),
        )
        accepted_R = torch.empty(count, dtype=torch.bool, device=self.device)
        verdicts = Verdicts(accepted_R=accepted_R, overlap_R=numbers[2])
        before = logits_RV.clone()
        plan = component.plan_ratio(SamplerSpec(vocabulary=vocabulary), count)
        component.verify(plan, logits_RV, rows, drafted, out, verdicts)
        assert_same_bits(logits_RV, before)
        return Verified(drafted, out, verdicts)

    def many(self, component: Sampler, case: Case, count: int) -> Verified:
        """The same row at as many positions."""
        rows = self.rows([case.settings])
        rows = SamplerRows(
            **{
                field.name: getattr(rows, field.name).expand(count).contiguous()
                for field in fields(rows)
                if getattr(rows, field.name) is not None
            }
        )
        rows = _changed(rows, position_R=torch.arange(count, device=self.device))
        drafted = self.drafts(component, case.drafter, rows)
        return self.verified(component, self._logits(LOGITS, count), rows, drafted)

    def _logits(self, logits: tuple[float, ...], count: int) -> torch.Tensor:
        return torch.tensor(logits, device=self.device).expand(count, -1).contiguous()

    @pytest.mark.parametrize("name", CASES)
    def test_many_tokens_follow_the_law_of_decoding_without_drafts(
        self, component: Sampler, name: str
    ) -> None:
        """Chi-square of up to 2^20, refused at 1e-3; fixed seeds make the result fixed."""
        case = CASES[name]
        tokens_R = self.many(component, case, case.draws).out.token_R
        count_V = torch.bincount(tokens_R, minlength=len(LOGITS)).double().cpu()
        want_V = case.draws * _law(LOGITS, case.settings)
        kept_V = want_V > 0
        assert not bool(count_V[~kept_V].any())
        chi_square = ((count_V - want_V)[kept_V] ** 2 / want_V[kept_V]).sum()
        freedom = kept_V.sum().double() - 1
        if freedom:  # one token only: it came always
            assert float(torch.special.gammaincc(freedom / 2, chi_square / 2)) > 1e-3

    @pytest.mark.parametrize("name", CASES)
    def test_the_overlap_is_the_share_of_accepted_drafts(
        self, component: Sampler, name: str
    ) -> None:
        """The sum of min(p, g) to 2^-23 by whole weights and fp32; the share within 5 sigma."""
        case, count = CASES[name], 1 << 16
        found = self.many(component, case, count)
        p_V = _law(LOGITS, case.settings)
        g_V = torch.zeros(len(LOGITS), dtype=torch.float64)
        g_V[-1] = 1
        if case.drafter is not None:
            g_V = _law(case.drafter, case.settings)
        overlap = float(torch.minimum(p_V, g_V).sum())
        want_R = torch.full((count,), overlap, dtype=torch.float64)
        assert_within(found.verdicts.overlap_R.cpu(), want_R, bound=2.0**-23)
        share = float(found.verdicts.accepted_R.double().mean())
        assert abs(share - overlap) <= 5 * (overlap * (1 - overlap) / count) ** 0.5 + 1e-7

    def test_an_accepted_draft_is_the_token_and_a_rejected_one_is_not(
        self, component: Sampler
    ) -> None:
        """What takes its place has more weight in p than in g, so it is another token."""
        found = self.many(component, CASES["other law"], 4096)
        same_R = found.out.token_R == found.drafted.draft_R
        assert bool((same_R == found.verdicts.accepted_R).all())
        assert 0 < int(same_R.sum()) < 4096

    def test_drafts_of_the_same_law_are_always_accepted(self, component: Sampler) -> None:
        """Then p(d) / g(d) is 1."""
        assert bool(self.many(component, CASES["same law"], 4096).verdicts.accepted_R.all())

    def test_drafts_differ_from_what_the_same_position_draws(self, component: Sampler) -> None:
        """Eight tokens, one law: drafts that shared the draw's number would all be equal."""
        found = self.many(component, CASES["same law"], 1024)
        drawn = self.draws(component, list(LOGITS), CASES["same law"].settings, 1024)
        assert float((found.drafted.draft_R.cpu() == drawn).double().mean()) < 0.5

    def test_a_row_without_a_draft_is_drawn_as_ever(self, component: Sampler) -> None:
        """Bit for bit, in the company of rows with drafts."""
        rows = self.rows([Settings(position=position, top_p=0.9) for position in range(64)])
        logits_RV = self._logits(LOGITS, 64)
        drafted = self.drafts(component, OTHER, rows)
        draft_R = drafted.draft_R.clone()
        draft_R[::2] = -1
        absent = DraftedRows(draft_R=draft_R, law_row_R=drafted.law_row_R, law_PV=drafted.law_PV)
        found, plain = self.verified(component, logits_RV, rows, absent), None
        plain = self.sample(component, logits_RV, rows)
        for name in ("token_R", "logprob_R", "processed_logprob_R", "invalid_R"):
            assert_same_bits(getattr(found.out, name)[::2].cpu(), getattr(plain, name)[::2])
        assert not bool(found.verdicts.accepted_R[::2].any())
        assert not bool(found.verdicts.overlap_R[::2].any())

    def test_a_greedy_row_accepts_its_best_token_and_gives_it_in_any_case(
        self, component: Sampler
    ) -> None:
        """Token 1: of equal logits the lowest id. Drafts are certain, then of a greedy drafter."""
        rows = self.rows([Settings(temperature=0, position=token) for token in range(8)])
        draft_R = torch.arange(8, device=self.device)
        certain = DraftedRows(draft_R=draft_R, law_row_R=torch.full_like(draft_R, -1))
        laws_PV = torch.eye(8, dtype=torch.int32, device=self.device) * (2**31 - 1)
        kept = DraftedRows(draft_R=draft_R, law_row_R=draft_R, law_PV=laws_PV)
        for drafted in (certain, kept):
            found = self.verified(component, self._logits(LOGITS, 8), rows, drafted)
            assert found.out.token_R.tolist() == [1] * 8
            assert found.verdicts.accepted_R.tolist() == [token == 1 for token in range(8)]
            assert not bool(found.out.processed_logprob_R.any())

    def test_a_forced_token_is_given_and_accepts_the_draft_that_it_is(
        self, component: Sampler
    ) -> None:
        """Whatever the laws say."""
        rows = self.rows([Settings(forced=5, position=token) for token in range(8)])
        draft_R = torch.arange(8, device=self.device)
        drafted = DraftedRows(draft_R=draft_R, law_row_R=torch.full_like(draft_R, -1))
        found = self.verified(component, self._logits(LOGITS, 8), rows, drafted)
        assert found.out.token_R.tolist() == [5] * 8
        assert found.verdicts.accepted_R.tolist() == [token == 5 for token in range(8)]

    def test_a_masked_draft_is_never_accepted_and_no_masked_token_takes_its_place(
        self, component: Sampler
    ) -> None:
        """2048 drafts of a drafter that knows no mask."""
        settings = [Settings(position=position) for position in range(2048)]
        drafted = self.drafts(component, OTHER, self.rows(settings))
        rows = self.rows(settings, [[0, 2, 7]] * 2048)
        found = self.verified(component, self._logits(LOGITS, 2048), rows, drafted)
        assert set(found.out.token_R.tolist()) == {0, 2, 7}
        accepted_R = found.verdicts.accepted_R
        assert set(drafted.draft_R[accepted_R].tolist()) == {0, 2, 7}

    def test_log_probabilities_are_of_the_law_of_the_row(self, component: Sampler) -> None:
        """Not of the one that replaced a draft."""
        settings = Settings(temperature=0.8, top_k=6)
        found = self.many(component, Case(settings=settings), 256)
        token_R = found.out.token_R.cpu()
        for got, law in (
            (found.out.processed_logprob_R, _law(LOGITS, settings)),
            (found.out.logprob_R, _law(LOGITS, Settings())),
        ):
            assert_within(got.cpu(), law.log()[token_R], bound=TOLERANCE)

    def test_an_invalid_row_is_marked_and_harms_no_other(self, component: Sampler) -> None:
        """The second of three."""
        rows = self.rows([Settings(position=position) for position in range(3)])
        drafted = self.drafts(component, OTHER, rows)
        logits_RV = self._logits(LOGITS, 3)
        whole = self.verified(component, logits_RV, rows, drafted)
        logits_RV[1, 3] = torch.nan
        found = self.verified(component, logits_RV, rows, drafted)
        assert found.out.invalid_R.tolist() == [False, True, False]
        assert_same_bits(found.out.token_R[::2], whole.out.token_R[::2])

    def test_a_verdict_depends_on_its_own_row_only(
        self, component: Sampler, generator: torch.Generator
    ) -> None:
        """Each of 9 rows alone is what it is among the others."""
        self.require(component.properties.batch_invariant, "batch invariance")
        rows = self.rows(
            [Settings(seed=row, position=3 * row, temperature=row % 3) for row in range(9)]
        )
        logits_RV = 2 * self.noise(generator, 9, 300, dtype=torch.float32)
        laws_PV = torch.randint(0, 1 << 20, (9, 300), generator=generator, dtype=torch.int32)
        laws_PV = laws_PV.to(self.device)
        draft_R = torch.randint(0, 300, (9,), generator=generator).to(self.device)
        number_R = torch.arange(9, device=self.device)
        drafted = DraftedRows(draft_R=draft_R, law_row_R=number_R, law_PV=laws_PV)
        whole = self.verified(component, logits_RV, rows, drafted)
        for row in range(9):
            one = slice(row, row + 1)
            alone = self.verified(
                component, logits_RV[one].contiguous(), rows.tile(one), drafted.tile(one)
            )
            for part, name in (("out", "token_R"), ("verdicts", "accepted_R")):
                found = getattr(getattr(alone, part), name)
                assert_same_bits(found, getattr(getattr(whole, part), name)[one])
            assert_same_bits(alone.verdicts.overlap_R, whole.verdicts.overlap_R[one])


def _law(logits: tuple[float, ...], settings: Settings) -> torch.Tensor:
    law = oracle.processed(
        list(logits), settings.temperature, settings.top_p, settings.top_k, settings.min_p
    )
    return torch.tensor(law, dtype=torch.float64).exp()


def _changed(rows: SamplerRows, **values: torch.Tensor) -> SamplerRows:
    kept = {field.name: getattr(rows, field.name) for field in fields(rows)}
    return SamplerRows(**{**kept, **values})
