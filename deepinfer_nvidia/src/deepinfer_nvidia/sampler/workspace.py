"""Where do a sampler's kernels leave for each other what they found out about rows?

Shapes: R rows, V vocabulary, S segments, G groups, X rows of a tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.operators.sampler import SampleSpec
from deepinfer_core.interfaces.sampler import SamplerOutputs, SamplerSpec

__all__ = [
    "KeptLaws",
    "RatioWorkspace",
    "RowScan",
    "SamplerWorkspace",
    "TileLangRatioPlan",
    "TileLangSamplerPlan",
]

_FP32, _FP64, _INT32, _INT64 = torch.float32, torch.float64, torch.int32, torch.int64


@dataclass(frozen=True, slots=True, kw_only=True)
class RowScan:
    """Peaks and sums of segments.

    Attributes:
        numbers_RS: bytes of the segments' peaks; fp32 or fp64 as the logits are.
        group_numbers_RG: the same of groups.
        peak_token_RS: int32.
        sum_RS: fp64, relative to the segment's peak.
        scaled_sum_RS: fp64, the same over temperature.
        bad_RS: int32, whether there is NaN or +inf.
    """

    numbers_RS: torch.Tensor
    group_numbers_RG: torch.Tensor
    peak_token_RS: torch.Tensor
    sum_RS: torch.Tensor
    scaled_sum_RS: torch.Tensor
    bad_RS: torch.Tensor

    @classmethod
    def empty(cls, spec: SampleSpec, rows: int, device: str) -> RowScan:
        """For so many rows."""
        segments, groups = spec.segments, spec.groups
        return cls(
            numbers_RS=torch.empty(rows, segments, dtype=_FP64, device=device),
            group_numbers_RG=torch.empty(rows, groups, dtype=_FP64, device=device),
            peak_token_RS=torch.empty(rows, segments, dtype=_INT32, device=device),
            sum_RS=torch.empty(rows, segments, dtype=_FP64, device=device),
            scaled_sum_RS=torch.empty(rows, segments, dtype=_FP64, device=device),
            bad_RS=torch.empty(rows, segments, dtype=_INT32, device=device),
        )

    def arguments(self, rows: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        """Outputs of ``sampler_scan_logits`` for logits of a dtype."""
        return {
            "peak_RS": typed_rows(self.numbers_RS, rows, dtype),
            "peak_token_RS": self.peak_token_RS[:rows],
            "sum_RS": self.sum_RS[:rows],
            "scaled_sum_RS": self.scaled_sum_RS[:rows],
            "bad_RS": self.bad_RS[:rows],
            "group_RG": typed_rows(self.group_numbers_RG, rows, dtype),
        }


def typed_rows(whole: torch.Tensor, rows: int, dtype: torch.dtype) -> torch.Tensor:
    """The first rows of fp64 memory as rows of another dtype, without gaps."""
    width = whole.shape[1]
    return whole.view(-1).view(dtype)[: rows * width].view(rows, width)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerWorkspace:
    """All of it.

    Attributes:
        raw: of the model's logits.
        adjusted: of those that masks and rules changed.
        adjusted_XV: fp64 memory for adjusted logits, a tile of rows.
        zero_R: fp32 zeros: temperatures of rows that nothing is drawn from.
        log_total_R: fp64, log of the sum of exponentials of the model's logits.
        peak_R: fp64, largest adjusted logit.
        total_R: fp64, sum of exponentials over temperature, relative to it.
        pending_R: int32, whether the row is still to be drawn from.
        cut_value_R: fp64 logit of the last survivor.
        cut_token_R: int32, the last survivor.
        kept_total_R: fp64, ``total_R`` of survivors alone.
        chunk_RG: int64 weights of chunks.
    """

    raw: RowScan
    adjusted: RowScan
    adjusted_XV: torch.Tensor
    zero_R: torch.Tensor
    log_total_R: torch.Tensor
    peak_R: torch.Tensor
    total_R: torch.Tensor
    pending_R: torch.Tensor
    cut_value_R: torch.Tensor
    cut_token_R: torch.Tensor
    kept_total_R: torch.Tensor
    chunk_RG: torch.Tensor

    @classmethod
    def empty(cls, vocabulary: int, rows: int, tile_rows: int, device: str) -> SamplerWorkspace:
        """For so many rows; of adjusted ones ``tile_rows`` at a time, or twice that in fp32."""
        spec = SampleSpec(vocabulary=vocabulary)
        fp64 = [torch.empty(rows, dtype=_FP64, device=device) for _ in range(5)]
        int32 = [torch.empty(rows, dtype=_INT32, device=device) for _ in range(2)]
        return cls(
            raw=RowScan.empty(spec, rows, device),
            adjusted=RowScan.empty(spec, min(rows, 2 * tile_rows), device),
            adjusted_XV=torch.empty(tile_rows, vocabulary, dtype=_FP64, device=device),
            zero_R=torch.zeros(rows, dtype=_FP32, device=device),
            log_total_R=fp64[0],
            peak_R=fp64[1],
            total_R=fp64[2],
            cut_value_R=fp64[3],
            kept_total_R=fp64[4],
            pending_R=int32[0],
            cut_token_R=int32[1],
            chunk_RG=torch.empty(rows, spec.groups, dtype=_INT64, device=device),
        )

    def rows(self, count: int, *names: str) -> dict[str, torch.Tensor]:
        """The first rows of tensors by name."""
        return {name: getattr(self, name)[:count] for name in names}


@dataclass(frozen=True, kw_only=True)
class TileLangSamplerPlan(Plan):
    """The numbers, and the memory."""

    spec: SamplerSpec
    workspace: SamplerWorkspace


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLaws:
    """Where the laws of rows are written.

    Attributes:
        law_row_R: int64 rows of ``law_PV``.
        law_PV: int32.
    """

    law_row_R: torch.Tensor
    law_PV: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioWorkspace:
    """What the ratio rule needs besides.

    Attributes:
        law_XV: int32 laws of a tile of rows.
        number_R: int64, 0, 1, 2, ...: the rows of ``law_XV``.
        logprob_2R: fp32 that nobody reads: both log-probabilities of drafts.
        invalid_R: bool, of drafts.
    """

    law_XV: torch.Tensor
    number_R: torch.Tensor
    logprob_2R: torch.Tensor
    invalid_R: torch.Tensor

    @classmethod
    def empty(cls, vocabulary: int, rows: int, tile_rows: int, device: str) -> RatioWorkspace:
        """For so many rows, of which ``tile_rows`` are verified at a time."""
        return cls(
            law_XV=torch.empty(tile_rows, vocabulary, dtype=_INT32, device=device),
            number_R=torch.arange(tile_rows, device=device),
            logprob_2R=torch.empty(2, rows, dtype=_FP32, device=device),
            invalid_R=torch.empty(rows, dtype=torch.bool, device=device),
        )

    def own_laws(self, rows: int) -> KeptLaws:
        """Where the laws of the first rows go."""
        return KeptLaws(law_row_R=self.number_R[:rows], law_PV=self.law_XV)

    def outputs(self, token_R: torch.Tensor) -> SamplerOutputs:
        """Buffers of drafts, of which their tokens alone count."""
        count = token_R.shape[0]
        return SamplerOutputs(
            token_R=token_R,
            logprob_R=self.logprob_2R[0, :count],
            processed_logprob_R=self.logprob_2R[1, :count],
            top_token_RA=token_R[:, None][:, :0],
            top_logprob_RA=self.logprob_2R[:1, :0].expand(count, 0),
            invalid_R=self.invalid_R[:count],
        )


@dataclass(frozen=True, kw_only=True)
class TileLangRatioPlan(TileLangSamplerPlan):
    """Memory for laws, too."""

    ratio: RatioWorkspace
