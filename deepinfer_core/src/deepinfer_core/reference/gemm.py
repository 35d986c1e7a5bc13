"""How are products with quantised weights computed, row by row and expert by expert?

A weight is either widened once, when it is handed over, or kept as the checkpoint has it and
widened in every call (an expert only when it has rows). Both give the same bits: every stored value
is exact in fp32.

Batch invariance comes from ``arithmetic.row_product``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.interfaces.gemm import (
    DenseGemm,
    DenseSpec,
    GroupedGemm,
    GroupedSpec,
    PreparedWeight,
)
from deepinfer_core.numeric import QuantTensor, fake_quantise, number_format
from deepinfer_core.plugin import BuildContext
from deepinfer_core.reference.arithmetic import align_width, row_product
from deepinfer_core.reference.promises import PROMISES

__all__ = ["ReferenceGemm", "StoredWeight", "WidenedWeight", "build"]


class GemmOptions(Protocol):
    """The options that ``build`` reads."""

    @property
    def weights(self) -> str:
        """``widened`` or ``stored``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WidenedWeight:
    """A weight as plain numbers.

    Attributes:
        wide_NK: [.., N, K] in the accumulation dtype, K padded with zeros to whole lines.
        width: K without the padding.
    """

    wide_NK: torch.Tensor
    width: int

    @property
    def memory_bytes(self) -> int:
        """Bytes of the widened numbers."""
        return self.wide_NK.nbytes

    def dequantise(self) -> torch.Tensor:
        """The values in fp32."""
        return self.wide_NK[..., : self.width].to(torch.float32)

    def widen(self, expert: int | None = None) -> torch.Tensor:
        """The matrix [N, K], or that of one expert."""
        return self.wide_NK if expert is None else self.wide_NK[expert]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoredWeight:
    """A weight as the checkpoint has it.

    Attributes:
        stored: data and scales.
        accumulate: dtype to widen to.
    """

    stored: QuantTensor
    accumulate: torch.dtype

    @property
    def memory_bytes(self) -> int:
        """Bytes of data and scales."""
        return self.stored.nbytes

    def dequantise(self) -> torch.Tensor:
        """The values in fp32."""
        return self.stored.dequantise(torch.float32)

    def widen(self, expert: int | None = None) -> torch.Tensor:
        """The matrix [N, K], or that of one expert; widened now."""
        stored = self.stored
        if expert is not None:
            scale = None if stored.scale is None else stored.scale[expert]
            stored = QuantTensor(data=stored.data[expert], scale=scale, format=stored.format)
        return align_width(stored.dequantise(self.accumulate))


@dataclass(frozen=True, kw_only=True)
class _DensePlan(Plan):
    spec: DenseSpec


@dataclass(frozen=True, kw_only=True)
class _GroupedPlan(Plan):
    spec: GroupedSpec


class ReferenceGemm(DenseGemm, GroupedGemm):
    """Products in fp32 (fp64 for fp64 weights) in tiles of rows.

    Args:
        accumulate: dtype of sums.
        is_widened: widen weights when they are handed over.
    """

    def __init__(self, *, accumulate: torch.dtype = torch.float32, is_widened: bool = True) -> None:
        self._accumulate = accumulate
        self._is_widened = is_widened

    @property
    def properties(self) -> Properties:
        """The promises of this component."""
        return PROMISES

    def prepare(self, weight: QuantTensor) -> WidenedWeight | StoredWeight:
        """Take over a weight [.., N, K] of any format."""
        if not self._is_widened:
            return StoredWeight(stored=weight, accumulate=self._accumulate)
        wide = align_width(weight.dequantise(self._accumulate)).contiguous()
        return WidenedWeight(wide_NK=wide, width=weight.shape[-1])

    def prepare_experts(self, weight: QuantTensor) -> WidenedWeight | StoredWeight:
        """Take over stacked weights [E, N, K] of any format."""
        return self.prepare(weight)

    def plan(self, spec: DenseSpec, max_rows: int) -> Plan:
        """Check the formats.

        Raises:
            NotSupported: an unknown format, or a width of partial groups.
        """
        _check(spec.activation_format, spec.out_dtype, spec.in_width)
        return _DensePlan(max_rows=max_rows, spec=spec)

    def plan_experts(self, spec: GroupedSpec, max_rows: int) -> Plan:
        """Check the formats.

        Raises:
            NotSupported: as in ``plan``.
        """
        _check(spec.activation_format, spec.out_dtype, spec.in_width)
        return _GroupedPlan(max_rows=max_rows, spec=spec)

    def run(
        self, plan: Plan, x_TK: torch.Tensor, weight: PreparedWeight, out_TN: torch.Tensor
    ) -> None:
        """Multiply, group by group."""
        assert isinstance(plan, _DensePlan)
        assert isinstance(weight, WidenedWeight | StoredWeight)
        spec = plan.spec
        x_TK = _rounded(x_TK, spec.activation_format)
        wide_NK = weight.widen()
        for group in range(spec.groups):
            columns = slice(group * spec.in_width, (group + 1) * spec.in_width)
            outputs = slice(group * spec.out_width, (group + 1) * spec.out_width)
            out_TN[:, outputs] = row_product(x_TK[:, columns], wide_NK[outputs])

    def run_experts(
        self,
        plan: Plan,
        x_RK: torch.Tensor,
        weight: PreparedWeight,
        ends_E: torch.Tensor,
        out_RN: torch.Tensor,
    ) -> None:
        """Multiply, expert by expert; experts without rows cost nothing."""
        assert isinstance(plan, _GroupedPlan)
        assert isinstance(weight, WidenedWeight | StoredWeight)
        ends = ends_E.tolist()
        if not ends:
            return
        x_RK = _rounded(x_RK[: ends[-1]], plan.spec.activation_format)
        for expert, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if start < end:
                out_RN[start:end] = row_product(x_RK[start:end], weight.widen(expert))


def build(options: GemmOptions | None, context: BuildContext) -> ReferenceGemm:
    """Build the component for both slots of gemm.

    Args:
        options: ``weights`` is ``widened`` or ``stored``; None means ``widened``.
        context: ``needs.compute`` decides the dtype of sums.
    """
    return ReferenceGemm(
        accumulate=torch.float64 if context.needs.compute == "float64" else torch.float32,
        is_widened=options is None or options.weights == "widened",
    )


def _check(activation_format: str, out_dtype: str, in_width: int) -> None:
    number_format(activation_format).row_bytes(in_width)
    if not number_format(out_dtype).is_plain:
        raise NotSupported(
            f"asked for products in {out_dtype}, found bfloat16, float32 and float64",
            hint="quantise the result afterwards",
        )


def _rounded(x: torch.Tensor, activation_format: str) -> torch.Tensor:
    form = number_format(activation_format)
    return x if form.is_plain else fake_quantise(x, activation_format)
