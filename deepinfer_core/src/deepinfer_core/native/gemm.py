"""How are products with weights computed by the compiled kernels?

A weight is widened and laid out in strips once, when it is handed over: as bf16 where that is
exact, which it is for every quantised format with ordinary scales, otherwise as fp32.
``kernels/gemm.c`` says in which order sums are taken.
"""

from __future__ import annotations

import ctypes
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
from deepinfer_core.interfaces.recording import Recorder
from deepinfer_core.native.library import bind, open_library
from deepinfer_core.native.promises import PROMISES
from deepinfer_core.native.recording import kernel_recorder
from deepinfer_core.native.tensors import type_code
from deepinfer_core.numeric import QuantTensor, fake_quantise, number_format
from deepinfer_core.plugin import BuildContext

__all__ = ["CpuGemm", "PackedWeight", "build"]

_STRIP = 16
"""Outputs that lie side by side for each input channel; ``STRIP`` of ``kernels/gemm.c``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedWeight:
    """A weight in strips.

    Attributes:
        strips: outputs beyond N are zero; fp32 [.., strips, K, 16], or bf16
            [.., strips, K / 2, 16, 2] with the pairs that ``kernels/gemm.c`` multiplies at once.
        out_width: N of the matrix, or of one expert's.
        in_width: K.
        address: of the first number.
        code: of the dtype.
    """

    strips: torch.Tensor
    out_width: int
    in_width: int
    address: int
    code: int

    @property
    def memory_bytes(self) -> int:
        """Bytes of the strips."""
        return self.strips.nbytes

    def dequantise(self) -> torch.Tensor:
        """The values, fp32 [.., N, K]."""
        wide_SKO = self.strips.to(torch.float32)
        if self.strips.dtype is torch.bfloat16:
            wide_SKO = wide_SKO.transpose(-1, -2).flatten(-3, -2)
        wide_NK = wide_SKO.transpose(-1, -2).flatten(-3, -2)
        return wide_NK[..., : self.out_width, :].contiguous()


@dataclass(frozen=True, kw_only=True)
class _ProductPlan(Plan):
    """What stays the same for all calls.

    Attributes:
        in_width: columns of the input.
        out_width: columns of the output.
        words: ``product_t`` of ``kernels/gemm.c``.
        address: of the words.
        beforehand: format that ``numeric`` rounds inputs to, where the kernel does not; or empty.
    """

    in_width: int
    out_width: int
    words: ctypes.Array[ctypes.c_int64]
    address: int
    beforehand: str


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
        self._dense: Callable[..., int] = bind(library, "di_gemm_dense", "pplplllpl")
        self._experts: Callable[..., int] = bind(library, "di_gemm_experts", "pplpllplpl")
        self._threads = threads
        self._words: dict[tuple[int, ...], ctypes.Array[ctypes.c_int64]] = {}
        self._recorder = kernel_recorder(cache_dir)

    @property
    def properties(self) -> Properties:
        """The promises of this component."""
        return PROMISES

    @property
    def recorder(self) -> Recorder:
        """All compiled kernels share one."""
        return self._recorder

    def prepare(self, weight: QuantTensor) -> PackedWeight:
        """Take over a weight [.., N, K] of any format."""
        wide_NK = weight.dequantise(torch.float32)
        out_width, in_width = wide_NK.shape[-2:]
        half_NK = wide_NK.to(torch.bfloat16)
        is_half = in_width % 2 == 0 and torch.equal(half_NK.to(torch.float32), wide_NK)
        wide_NK = half_NK if is_half else wide_NK
        padded_NK = torch.nn.functional.pad(wide_NK, (0, 0, 0, -out_width % _STRIP))
        strips = padded_NK.view(*wide_NK.shape[:-2], -1, _STRIP, in_width).transpose(-1, -2)
        strips = strips.contiguous()
        if is_half:
            strips = strips.view(*strips.shape[:-2], in_width // 2, 2, _STRIP).transpose(-1, -2)
        strips = strips.contiguous()
        return PackedWeight(
            strips=strips,
            out_width=out_width,
            in_width=in_width,
            address=strips.data_ptr(),
            code=type_code(strips.dtype),
        )

    def prepare_experts(self, weight: QuantTensor) -> PackedWeight:
        """Take over stacked weights [E, N, K] of any format."""
        return self.prepare(weight)

    def plan(self, spec: DenseSpec, max_rows: int) -> Plan:
        """Check the formats.

        Raises:
            NotSupported: an unknown format, a width of partial groups, or fp64 results.
        """
        return self._plan(spec, spec.groups, max_rows)

    def plan_experts(self, spec: GroupedSpec, max_rows: int) -> Plan:
        """Check the formats.

        Raises:
            NotSupported: as in ``plan``.
        """
        return self._plan(spec, 1, max_rows)

    def run(
        self, plan: Plan, x_TK: torch.Tensor, weight: PreparedWeight, out_TN: torch.Tensor
    ) -> None:
        """Multiply all groups."""
        assert isinstance(plan, _ProductPlan)
        assert isinstance(weight, PackedWeight)
        x_TK, x_stride = _readable(x_TK, plan.beforehand)
        rows, width = x_TK.shape
        assert width == plan.in_width
        assert weight.out_width == plan.out_width
        self._dense(
            plan.address,
            weight.address,
            weight.code,
            x_TK.data_ptr(),
            type_code(x_TK.dtype),
            x_stride,
            rows,
            out_TN.data_ptr(),
            out_TN.stride(0),
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
        assert isinstance(plan, _ProductPlan)
        assert isinstance(weight, PackedWeight)
        x_RK, x_stride = _readable(x_RK, plan.beforehand)
        assert x_RK.shape[1] == plan.in_width == weight.in_width
        assert weight.out_width == plan.out_width
        assert len(weight.strips) == len(ends_E)
        self._experts(
            plan.address,
            weight.address,
            weight.code,
            x_RK.data_ptr(),
            type_code(x_RK.dtype),
            x_stride,
            ends_E.data_ptr(),
            len(ends_E),
            out_RN.data_ptr(),
            out_RN.stride(0),
        )

    def _plan(self, spec: DenseSpec | GroupedSpec, groups: int, max_rows: int) -> Plan:
        form, out = number_format(spec.activation_format), number_format(spec.out_dtype)
        form.row_bytes(spec.in_width)
        if not out.is_plain:
            raise NotSupported(
                f"asked for products in {spec.out_dtype}, found bfloat16 and float32",
                hint="quantise the result afterwards",
            )
        in_kernel = form.name == "mxfp8"
        code = type_code(out.storage)
        fixed = (spec.in_width, spec.out_width, groups, in_kernel, code, self._threads)
        # Recordings point at the words, so they outlive a plan that was renewed for more rows.
        words = self._words.setdefault(fixed, (ctypes.c_int64 * 6)(*fixed))
        return _ProductPlan(
            max_rows=max_rows,
            in_width=groups * spec.in_width,
            out_width=groups * spec.out_width,
            words=words,
            address=ctypes.addressof(words),
            beforehand="" if in_kernel or form.is_plain else form.name,
        )


def build(options: None, context: BuildContext) -> CpuGemm:
    """Build the component for both slots of gemm; it has no options.

    Args:
        options: None.
        context: ``cache_dir`` has the compiled kernels.
    """
    return CpuGemm(context.cache_dir, threads=torch.get_num_threads())


def _readable(x: torch.Tensor, beforehand: str) -> tuple[torch.Tensor, int]:
    """The rows as the kernel reads them, channels side by side, and the stride from row to row."""
    if beforehand:
        x = fake_quantise(x, beforehand)
    stride, step = x.stride()
    if step == 1:
        return x, stride
    x = x.contiguous()
    return x, x.stride(0)
