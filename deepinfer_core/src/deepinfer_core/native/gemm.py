"""How are products with weights computed by the compiled kernels?

A weight is widened and laid out in strips once, when it is handed over: as bf16 where that is
exact, which it is for every quantised format with ordinary scales, otherwise as fp32.
``kernels/gemm.c`` says in which order sums are taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
from deepinfer_core.native.library import bind, open_library
from deepinfer_core.native.promises import PROMISES
from deepinfer_core.native.tensors import TYPE_CODES, type_code
from deepinfer_core.numeric import QuantTensor, fake_quantise, number_format
from deepinfer_core.plugin import BuildContext

__all__ = ["CpuGemm", "PackedWeight", "build"]

_STRIP = 16
"""Outputs that lie side by side for each input channel; ``STRIP`` of ``kernels/gemm.c``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedWeight:
    """A weight in strips.

    Attributes:
        strips_SKO: [.., strips, K, 16], bf16 or fp32; outputs beyond N are zero.
        out_width: N of the matrix, or of one expert's.
    """

    strips_SKO: torch.Tensor
    out_width: int

    @property
    def memory_bytes(self) -> int:
        """Bytes of the strips."""
        return self.strips_SKO.nbytes

    def dequantise(self) -> torch.Tensor:
        """The values, fp32 [.., N, K]."""
        wide_NK = self.strips_SKO.to(torch.float32).transpose(-1, -2).flatten(-3, -2)
        return wide_NK[..., : self.out_width, :].contiguous()


@dataclass(frozen=True, kw_only=True)
class _DensePlan(Plan):
    spec: DenseSpec
    rounding: _Rounding
    out_code: int


@dataclass(frozen=True, kw_only=True)
class _GroupedPlan(Plan):
    spec: GroupedSpec
    rounding: _Rounding
    out_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rounding:
    """Who rounds the input: the kernel, or ``numeric`` before it; nobody if both are empty."""

    in_kernel: bool = False
    beforehand: str = ""


class CpuGemm(DenseGemm, GroupedGemm):
    """Products in fp32.

    Args:
        cache_dir: folder of compiled kernels.
        threads: threads of one product.

    Raises:
        DeviceError: the kernels cannot be compiled or loaded.
    """

    def __init__(self, cache_dir: str, *, threads: int = 1) -> None:
        library = open_library(cache_dir)
        self._dense: Callable[..., int] = bind(library, "di_gemm_dense", "plllplllllplll")
        self._experts: Callable[..., int] = bind(library, "di_gemm_experts", "pllplllpllplll")
        self._threads = threads

    @property
    def properties(self) -> Properties:
        """The promises of this component."""
        return PROMISES

    def prepare(self, weight: QuantTensor) -> PackedWeight:
        """Take over a weight [.., N, K] of any format."""
        wide_NK = weight.dequantise(torch.float32)
        half_NK = wide_NK.to(torch.bfloat16)
        if torch.equal(half_NK.to(torch.float32), wide_NK):
            wide_NK = half_NK
        missing = -wide_NK.shape[-2] % _STRIP
        padded_NK = torch.nn.functional.pad(wide_NK, (0, 0, 0, missing))
        strips_SOK = padded_NK.view(*wide_NK.shape[:-2], -1, _STRIP, wide_NK.shape[-1])
        return PackedWeight(
            strips_SKO=strips_SOK.transpose(-1, -2).contiguous(), out_width=wide_NK.shape[-2]
        )

    def prepare_experts(self, weight: QuantTensor) -> PackedWeight:
        """Take over stacked weights [E, N, K] of any format."""
        return self.prepare(weight)

    def plan(self, spec: DenseSpec, max_rows: int) -> Plan:
        """Check the formats.

        Raises:
            NotSupported: an unknown format, a width of partial groups, or fp64 results.
        """
        return _DensePlan(
            max_rows=max_rows,
            spec=spec,
            rounding=_rounding(spec.activation_format, spec.in_width),
            out_code=_out_code(spec.out_dtype),
        )

    def plan_experts(self, spec: GroupedSpec, max_rows: int) -> Plan:
        """Check the formats.

        Raises:
            NotSupported: as in ``plan``.
        """
        return _GroupedPlan(
            max_rows=max_rows,
            spec=spec,
            rounding=_rounding(spec.activation_format, spec.in_width),
            out_code=_out_code(spec.out_dtype),
        )

    def run(
        self, plan: Plan, x_TK: torch.Tensor, weight: PreparedWeight, out_TN: torch.Tensor
    ) -> None:
        """Multiply all groups."""
        assert isinstance(plan, _DensePlan)
        assert isinstance(weight, PackedWeight)
        spec, strips = plan.spec, weight.strips_SKO
        x_TK = _readable(x_TK, plan.rounding)
        assert x_TK.shape[1] == spec.groups * spec.in_width
        assert weight.out_width == out_TN.shape[1] == spec.groups * spec.out_width
        self._dense(
            x_TK.data_ptr(),
            type_code(x_TK.dtype),
            x_TK.stride(0),
            x_TK.shape[0],
            strips.data_ptr(),
            TYPE_CODES[strips.dtype],
            spec.in_width,
            spec.out_width,
            spec.groups,
            plan.rounding.in_kernel,
            out_TN.data_ptr(),
            plan.out_code,
            out_TN.stride(0),
            self._threads,
        )

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
        assert isinstance(weight, PackedWeight)
        spec, strips = plan.spec, weight.strips_SKO
        x_RK = _readable(x_RK, plan.rounding)
        assert x_RK.shape[1] == spec.in_width
        assert weight.out_width == out_RN.shape[1] == spec.out_width
        assert strips.shape[0] == ends_E.shape[0]
        self._experts(
            x_RK.data_ptr(),
            type_code(x_RK.dtype),
            x_RK.stride(0),
            strips.data_ptr(),
            TYPE_CODES[strips.dtype],
            spec.in_width,
            spec.out_width,
            ends_E.data_ptr(),
            ends_E.shape[0],
            plan.rounding.in_kernel,
            out_RN.data_ptr(),
            plan.out_code,
            out_RN.stride(0),
            self._threads,
        )


def build(options: None, context: BuildContext) -> CpuGemm:
    """Build the component for both slots of gemm; it has no options.

    Args:
        options: None.
        context: ``cache_dir`` has the compiled kernels.
    """
    return CpuGemm(context.cache_dir, threads=torch.get_num_threads())


def _rounding(activation_format: str, in_width: int) -> _Rounding:
    form = number_format(activation_format)
    form.row_bytes(in_width)
    if form.is_plain:
        return _Rounding()
    if activation_format == "mxfp8":
        return _Rounding(in_kernel=True)
    return _Rounding(beforehand=activation_format)


def _out_code(out_dtype: str) -> int:
    form = number_format(out_dtype)
    if not form.is_plain:
        raise NotSupported(
            f"asked for products in {out_dtype}, found bfloat16 and float32",
            hint="quantise the result afterwards",
        )
    return type_code(form.storage)


def _readable(x: torch.Tensor, rounding: _Rounding) -> torch.Tensor:
    """The rows as the kernel reads them: channels side by side."""
    if rounding.beforehand:
        x = fake_quantise(x, rounding.beforehand)
    return x if x.stride(-1) == 1 else x.contiguous()
