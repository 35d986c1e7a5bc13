"""How does a row of logits become a token?

Probabilities are fp64. Truncation and drawing use integer weights ``floor(2^31 * p)``, whose sums
do not depend on their order, so a token depends on the row's own logits and settings alone.

* Masks, biases and penalties: ``logits_rules``. Log-probabilities of the raw model law know none.
* Order: logit descending, then id ascending. top-k keeps a prefix of it. top-p keeps the shortest
  prefix whose weight exceeds ``floor(2^31 * top_p)``; it is measured before top-k. min-p drops
  what has less than its share of the largest probability.
* Draw: the survivors are normalised again (``laws``); the first id whose running weight exceeds
  ``floor(u * total)`` is the token, with u from ``random_numbers``. A token of weight zero is
  never drawn.
* Drafts: ``ratio_rule``.

Shapes: R rows, V vocabulary, A alternatives, P rows of kept laws.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.interfaces.sampler import (
    DraftedRows,
    Sampler,
    SamplerOutputs,
    SamplerRows,
    SamplerSpec,
    Verdicts,
)
from deepinfer_core.plugin import BuildContext
from deepinfer_core.reference.laws import invert, laws_of, point_laws
from deepinfer_core.reference.logits_rules import adjusted
from deepinfer_core.reference.promises import PROMISES
from deepinfer_core.reference.random_numbers import (
    ACCEPTANCE_CASE,
    FRESH_CASE,
    RESIDUAL_CASE,
    uniform_bits,
)
from deepinfer_core.reference.ratio_rule import keep_laws, ratio_rule

__all__ = ["ReferenceSampler", "SamplerPlan", "build"]

_TILE_ELEMENTS = 1 << 21
"""Logits at a time; each takes about ten fp64 or int64 numbers."""


@dataclass(frozen=True, kw_only=True)
class SamplerPlan(Plan):
    """The numbers, checked."""

    spec: SamplerSpec


class ReferenceSampler(Sampler):
    """Draws with the portable generator."""

    @property
    def properties(self) -> Properties:
        """The promises of this component."""
        return PROMISES

    def plan(self, spec: SamplerSpec, max_rows: int) -> Plan:
        """Check the numbers.

        Raises:
            NotSupported: more alternatives than tokens.
        """
        if spec.alternatives > spec.vocabulary:
            raise NotSupported(
                f"asked for {spec.alternatives} alternatives, found {spec.vocabulary} tokens",
                hint="ask for fewer",
            )
        return SamplerPlan(max_rows=max_rows, spec=spec)

    def run(
        self, plan: Plan, logits_RV: torch.Tensor, rows: SamplerRows, out: SamplerOutputs
    ) -> None:
        """Sample, a tile of rows at a time."""
        assert isinstance(plan, SamplerPlan)
        for tile in _tiles(logits_RV):
            _sample(_Rows.of(logits_RV[tile], rows.tile(tile)), out.tile(tile), plan.spec)

    def plan_ratio(self, spec: SamplerSpec, max_rows: int) -> Plan:
        """Check the numbers; see ``plan``."""
        return ReferenceSampler.plan(self, spec, max_rows)

    def verify(
        self,
        plan: Plan,
        logits_RV: torch.Tensor,
        rows: SamplerRows,
        drafted: DraftedRows,
        out: SamplerOutputs,
        verdicts: Verdicts,
    ) -> None:
        """Verify, a tile of rows at a time."""
        assert isinstance(plan, SamplerPlan)
        for tile in _tiles(logits_RV):
            work = _Rows.of(logits_RV[tile], rows.tile(tile))
            _verify(work, drafted.tile(tile), out.tile(tile), verdicts.tile(tile), plan.spec)

    def draw_drafts(
        self,
        plan: Plan,
        logits_RV: torch.Tensor,
        rows: SamplerRows,
        law_row_R: torch.Tensor,
        law_PV: torch.Tensor,
        token_R: torch.Tensor,
    ) -> None:
        """Draw, a tile of rows at a time."""
        for tile in _tiles(logits_RV):
            work = _Rows.of(logits_RV[tile], rows.tile(tile))
            law_RV = keep_laws(laws_of(work.adjusted_RV, work.settings)[0])
            bits_R = uniform_bits(work.settings.seed_R, work.settings.position_R, FRESH_CASE)
            law_PV[law_row_R[tile]] = law_RV
            token_R[tile] = invert(law_RV.to(torch.int64), bits_R)


def build(options: None, context: BuildContext) -> ReferenceSampler:
    """Build the component; it has no options."""
    return ReferenceSampler()


def _tiles(logits_RV: torch.Tensor) -> Iterator[slice]:
    rows, vocabulary = logits_RV.shape
    tile_rows = max(_TILE_ELEMENTS // vocabulary, 1)
    for start in range(0, rows, tile_rows):
        yield slice(start, start + tile_rows)


@dataclass(frozen=True, slots=True)
class _Rows:
    """A tile of rows.

    Invalid ones are rows of zeros: what they give is unspecified, but must not fail.
    """

    raw_RV: torch.Tensor
    adjusted_RV: torch.Tensor
    invalid_R: torch.Tensor
    settings: SamplerRows

    @classmethod
    def of(cls, logits_RV: torch.Tensor, settings: SamplerRows) -> _Rows:
        raw_RV = logits_RV.to(torch.float64)
        adjusted_RV = adjusted(raw_RV, settings)
        invalid_R = raw_RV.isnan().any(-1) | (raw_RV == torch.inf).any(-1)
        invalid_R |= adjusted_RV.amax(-1) == -torch.inf
        return cls(
            raw_RV.masked_fill(invalid_R[:, None], 0),
            adjusted_RV.masked_fill(invalid_R[:, None], 0),
            invalid_R,
            settings,
        )


def _sample(work: _Rows, out: SamplerOutputs, spec: SamplerSpec) -> None:
    settings = work.settings
    if bool((settings.temperature_R == 0).all()):
        logprob_RV = point_laws(work.adjusted_RV)[1]
        drawn_R = work.adjusted_RV.argmax(-1)
    else:
        weight_RV, logprob_RV = laws_of(work.adjusted_RV, settings)
        bits_R = uniform_bits(settings.seed_R, settings.position_R, FRESH_CASE)
        drawn_R = invert(weight_RV, bits_R)
    token_R = torch.where(settings.forced_R >= 0, settings.forced_R, drawn_R)
    _report(work, token_R, logprob_RV, out, spec)


def _verify(
    work: _Rows,
    drafted: DraftedRows,
    out: SamplerOutputs,
    verdicts: Verdicts,
    spec: SamplerSpec,
) -> None:
    settings = work.settings
    weight_RV, logprob_RV = laws_of(work.adjusted_RV, settings)
    fresh_bits_R, residual_bits_R, acceptance_bits_R = (
        uniform_bits(settings.seed_R, settings.position_R, case)
        for case in (FRESH_CASE, RESIDUAL_CASE, ACCEPTANCE_CASE)
    )
    accepted_R, token_R, overlap_R = ratio_rule(
        weight_RV, drafted, acceptance_bits_R, residual_bits_R
    )
    token_R = torch.where(drafted.draft_R >= 0, token_R, invert(weight_RV, fresh_bits_R))
    is_forced_R = settings.forced_R >= 0
    accepted_R = torch.where(is_forced_R, settings.forced_R == drafted.draft_R, accepted_R)
    token_R = torch.where(is_forced_R, settings.forced_R, token_R)
    verdicts.accepted_R.copy_(accepted_R)
    verdicts.overlap_R.copy_(overlap_R)
    _report(work, token_R, logprob_RV, out, spec)


def _report(
    work: _Rows,
    token_R: torch.Tensor,
    logprob_RV: torch.Tensor,
    out: SamplerOutputs,
    spec: SamplerSpec,
) -> None:
    """Fill the buffers; ``logprob_RV`` is of the law that rows were drawn from."""
    raw_logprob_RV = work.raw_RV.log_softmax(-1)
    out.invalid_R.copy_(work.invalid_R)
    out.token_R.copy_(token_R)
    out.logprob_R.copy_(raw_logprob_RV.gather(1, token_R[:, None])[:, 0])
    out.processed_logprob_R.copy_(logprob_RV.gather(1, token_R[:, None])[:, 0])
    if spec.alternatives:
        order_RV = work.raw_RV.sort(dim=-1, descending=True, stable=True).indices
        top_RA = order_RV[:, : spec.alternatives]
        out.top_token_RA.copy_(top_RA)
        out.top_logprob_RA.copy_(raw_logprob_RV.gather(1, top_RA))
