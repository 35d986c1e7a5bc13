"""How are tokens drawn by kernels in TileLang?

Tokens are those of ``core.reference``: the same whole-number weights, random numbers and orders.
A probability is off by at most 2^-47 of itself (a temperature of 1, logits up to 30; the twin by as
much), so that a weight differs by one where a whole number lies between the two: in one row of
65536 for one of its tokens, and then in one of 2^31 draws from it the token is its neighbour.
Under the ratio rule the laws of rows are written down as those whole numbers; what follows is
exact.

Shapes: R rows, V vocabulary, P rows of kept laws.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.interfaces.operators.sampler import SampleSpec
from deepinfer_core.interfaces.sampler import (
    DraftedRows,
    Sampler,
    SamplerOutputs,
    SamplerRows,
    SamplerSpec,
    Verdicts,
)
from deepinfer_core.plugin import BuildContext

from deepinfer_nvidia.device.gpu import gpu_of
from deepinfer_nvidia.kernels import sampler_verify_drafts
from deepinfer_nvidia.kernels.launch import kernels_for
from deepinfer_nvidia.sampler.arguments import NAMES, check, columns
from deepinfer_nvidia.sampler.draws import Draws
from deepinfer_nvidia.sampler.workspace import (
    KeptLaws,
    RatioWorkspace,
    SamplerWorkspace,
    TileLangRatioPlan,
    TileLangSamplerPlan,
)

__all__ = ["TileLangSampler", "build"]

_MOST_TOKENS = 1 << 22
_ADJUSTED_BYTES = 1 << 26
_LAW_BYTES = 1 << 26
_MOST_ROWS = 65535
"""Rows of one launch: what the second axis of a grid may have."""


class TileLangSampler(Sampler):
    """Draws with the portable generator.

    Args:
        kernels: runs them.
        device: where they run, as torch names it.
    """

    def __init__(self, kernels: Kernels, device: str = "cuda") -> None:
        self._kernels = kernels
        self._draws = Draws(kernels)
        self._device = device

    @property
    def kernels_built(self) -> int | None:
        """Kernels that were compiled or loaded so far."""
        return self._kernels.built

    @property
    def properties(self) -> Properties:
        """The promises of this component."""
        return Properties(batch_invariant="always", deterministic="always", graph_safe="always")

    def plan(self, spec: SamplerSpec, max_rows: int) -> TileLangSamplerPlan:
        """Check the numbers and allocate; 64 MiB of it are for adjusted logits.

        Raises:
            NotSupported: more alternatives than tokens, or more than 2^22 tokens.
        """
        if spec.alternatives > spec.vocabulary:
            raise NotSupported(
                f"asked for {spec.alternatives} alternatives, found {spec.vocabulary} tokens",
                hint="ask for fewer",
            )
        if spec.vocabulary > _MOST_TOKENS:
            raise NotSupported(
                f"asked for {spec.vocabulary} tokens, the kernels have {_MOST_TOKENS}",
                hint="use another sampler",
            )
        tile_rows = min(max_rows, max(_ADJUSTED_BYTES // (8 * spec.vocabulary), 1))
        rows = min(max_rows, _MOST_ROWS)
        workspace = SamplerWorkspace.empty(spec.vocabulary, rows, tile_rows, self._device)
        return TileLangSamplerPlan(max_rows=max_rows, spec=spec, workspace=workspace)

    def run(
        self, plan: Plan, logits_RV: torch.Tensor, rows: SamplerRows, out: SamplerOutputs
    ) -> None:
        """Sample; rows that are masked or have rules a tile at a time."""
        assert isinstance(plan, TileLangSamplerPlan)
        check(logits_RV, plan)
        for tile in _tiles(plan, logits_RV, rows, logits_RV.shape[0]):
            self._draws.sample(plan, logits_RV[tile], rows.tile(tile), out.tile(tile))

    def plan_ratio(self, spec: SamplerSpec, max_rows: int) -> TileLangRatioPlan:
        """As ``plan``, and 64 MiB more for laws of rows.

        Raises:
            NotSupported: as ``plan``.
        """
        plan = self.plan(spec, max_rows)
        tile_rows = min(max_rows, max(_LAW_BYTES // (4 * spec.vocabulary), 1))
        memory = RatioWorkspace.empty(spec.vocabulary, max_rows, tile_rows, self._device)
        return TileLangRatioPlan(
            max_rows=max_rows, spec=spec, workspace=plan.workspace, ratio=memory
        )

    def verify(
        self,
        plan: Plan,
        logits_RV: torch.Tensor,
        rows: SamplerRows,
        drafted: DraftedRows,
        out: SamplerOutputs,
        verdicts: Verdicts,
    ) -> None:
        """Draw from every row, then accept or replace the drafts; a tile of rows at a time."""
        assert isinstance(plan, TileLangRatioPlan)
        check(logits_RV, plan)
        most = plan.ratio.law_XV.shape[0]
        for tile in _tiles(plan, logits_RV, rows, most):
            own = plan.ratio.own_laws(logits_RV[tile].shape[0])
            settings, drawn = rows.tile(tile), out.tile(tile)
            logits = self._draws.sample(plan, logits_RV[tile], settings, drawn, own)
            self._verify(
                plan, logits, settings, drafted.tile(tile), own, drawn, verdicts.tile(tile)
            )

    def _verify(
        self,
        plan: TileLangRatioPlan,
        logits: dict[str, torch.Tensor],
        rows: SamplerRows,
        drafted: DraftedRows,
        own: KeptLaws,
        out: SamplerOutputs,
        verdicts: Verdicts,
    ) -> None:
        raw_RV, logits_RV = logits["raw_logits_RV"], logits["logits_RV"]
        count, vocabulary = raw_RV.shape
        self._draws.call(
            sampler_verify_drafts,
            SampleSpec(
                vocabulary=vocabulary, dtype=NAMES[logits_RV.dtype], raw_dtype=NAMES[raw_RV.dtype]
            ),
            **logits,
            **columns(rows, "temperature_R", "min_p_R", "seed_R", "position_R", "forced_R"),
            **plan.workspace.rows(
                count, "log_total_R", "peak_R", "cut_value_R", "cut_token_R", "kept_total_R"
            ),
            own_law_RV=own.law_PV[:count],
            draft_R=drafted.draft_R.contiguous(),
            law_row_R=drafted.law_row_R.contiguous(),
            # Certain drafts alone have no laws, and none is read then.
            law_PV=own.law_PV if drafted.law_PV is None else drafted.law_PV,
            token_R=out.token_R,
            logprob_R=out.logprob_R,
            processed_logprob_R=out.processed_logprob_R,
            accepted_R=verdicts.accepted_R,
            overlap_R=verdicts.overlap_R,
        )

    def draw_drafts(
        self,
        plan: Plan,
        logits_RV: torch.Tensor,
        rows: SamplerRows,
        law_row_R: torch.Tensor,
        law_PV: torch.Tensor,
        token_R: torch.Tensor,
    ) -> None:
        """Draw as from any row, and write down its law."""
        assert isinstance(plan, TileLangRatioPlan)
        check(logits_RV, plan)
        law_row_R = law_row_R.contiguous()
        out = plan.ratio.outputs(token_R)
        without = replace(plan, spec=replace(plan.spec, alternatives=0))
        for tile in _tiles(plan, logits_RV, rows, logits_RV.shape[0]):
            kept = KeptLaws(law_row_R=law_row_R[tile], law_PV=law_PV)
            self._draws.sample(without, logits_RV[tile], rows.tile(tile), out.tile(tile), kept)


def build(options: None, context: BuildContext) -> TileLangSampler:
    """Build the component; it has no options.

    Args:
        options: None.
        context: says where compiled kernels are kept.
    """
    return TileLangSampler(kernels_for(context), gpu_of(context).torch_device)


def _tiles(
    plan: TileLangSamplerPlan, logits_RV: torch.Tensor, rows: SamplerRows, most: int
) -> Iterator[slice]:
    """At most so many rows at a time, and no more than the memory for adjusted logits holds."""
    count, tile_rows = logits_RV.shape[0], min(most, _MOST_ROWS)
    if rows.rules is not None or logits_RV.dtype == torch.float64:
        tile_rows = min(tile_rows, plan.workspace.adjusted_XV.shape[0])
    elif rows.allowed_RW is not None:
        tile_rows = min(tile_rows, 2 * plan.workspace.adjusted_XV.shape[0])
    for start in range(0, count, max(tile_rows, 1)):
        yield slice(start, start + tile_rows)
