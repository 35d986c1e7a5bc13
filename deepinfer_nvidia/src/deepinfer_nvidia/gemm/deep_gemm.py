"""Which products does the library DeepGEMM compute, behind the same interface?

Dense products of bf16 rows with bf16 weights, to which checkpoints' FP8 weights are widened; in
groups, those with bf16 results. Widths must be whole steps of 16 bytes, as the copy engine wants.
All other products are those of ``nvidia.tilelang``. Who multiplies follows from dtypes and widths.

Experts are not among them: on Hopper the library has no MXFP4, and its bf16 groups start at
multiples of 128 rows, where the interface has rows without gaps.

The library walks K upwards with instructions of 16 inputs and never splits it, so a row's bits
depend on that row alone, whatever tile it chooses for a number of rows.

Shapes: T rows, K input width, N output width, G groups.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.gemm import DenseSpec, PreparedWeight
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.numeric import number_format
from deepinfer_core.plugin import BuildContext

from deepinfer_nvidia.gemm.tilelang import TileLangGemm
from deepinfer_nvidia.gemm.weights import PlainWeight
from deepinfer_nvidia.kernels.arguments import check
from deepinfer_nvidia.kernels.catalogue import catalogue
from deepinfer_nvidia.kernels.vectors import ACCESS_BYTES, ELEMENT_BYTES
from deepinfer_nvidia.probe import kernel_folder

__all__ = ["DeepGemmCalls", "DeepGemmDense", "build"]

_BF16 = torch.bfloat16
_GROUPS = "bhr,hdr->bhd"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepGemmCalls:
    """The functions of the library that are called.

    Attributes:
        bf16_gemm_nt: ``(a, b, d)``, d = a @ b^T.
        einsum: ``(expr, a, b, d)``.
    """

    bf16_gemm_nt: Callable[..., object]
    einsum: Callable[..., object]

    @classmethod
    def load(cls) -> DeepGemmCalls:
        """Import the library.

        Raises:
            ImportError: it is not installed, or was built for another torch.
        """
        import deep_gemm

        return cls(bf16_gemm_nt=deep_gemm.bf16_gemm_nt, einsum=deep_gemm.einsum)


@dataclass(frozen=True, kw_only=True)
class _Plan(Plan):
    spec: DenseSpec
    other: Plan


class DeepGemmDense(TileLangGemm):
    """Dense products, those of the module's docstring by the library.

    The library compiles a kernel for each pair of widths and each tile that it chooses for a number
    of rows, when it is first called with them.

    Args:
        kernels: run what the library does not, and the rounding of rows.
        calls: of the library.
        folder: where the library keeps what it compiled; None if nobody knows.
        is_hopper: as in ``nvidia.tilelang``.
        cores: streaming multiprocessors of the device.
    """

    def __init__(
        self,
        kernels: Kernels,
        calls: DeepGemmCalls,
        *,
        folder: Path | None = None,
        is_hopper: bool = False,
        cores: int = 132,
    ) -> None:
        super().__init__(kernels, is_hopper=is_hopper, cores=cores)
        self._calls = calls
        self._folder = folder
        self._seen: set[tuple[DenseSpec, int]] = set()
        self._compiled = 0

    @property
    def kernels_built(self) -> int | None:
        """Kernels of both so far; of the library's those that are in its folder."""
        own = super().kernels_built
        return None if own is None else own + self._compiled

    def plan(self, spec: DenseSpec, max_rows: int) -> Plan:
        """Choose tiles for what the library does not multiply; the library chooses its own."""
        return _Plan(max_rows=max_rows, spec=spec, other=super().plan(spec, max_rows))

    def run(
        self, plan: Plan, x_TK: torch.Tensor, weight: PreparedWeight, out_TN: torch.Tensor
    ) -> None:
        """Multiply."""
        assert isinstance(plan, _Plan)
        assert isinstance(weight, PlainWeight)
        spec, rows = plan.spec, x_TK.shape[0]
        if not rows or not _can_multiply(spec, x_TK.dtype, weight.values):
            super().run(plan.other, x_TK, weight, out_TN)
            return
        groups, out_width = spec.groups, spec.out_width
        x_TK = self._rounded(x_TK, spec.activation_format)
        x_TK = check(x_TK, _BF16, rows, groups * spec.in_width)
        dtype = _BF16 if spec.out_dtype == "bfloat16" else torch.float32
        out_TN = check(out_TN, dtype, rows, groups * out_width)
        if groups == 1:
            self._calls.bf16_gemm_nt(x_TK, weight.values, out_TN)
        else:
            self._calls.einsum(
                _GROUPS,
                x_TK.view(rows, groups, spec.in_width),
                weight.values.view(groups, out_width, spec.in_width),
                out_TN.view(rows, groups, out_width),
            )
        self._count(spec, rows)

    def _count(self, spec: DenseSpec, rows: int) -> None:
        """Look for new kernels where there can be some; a folder is read once a shape."""
        if (spec, rows) in self._seen or self._folder is None:
            return
        self._seen.add((spec, rows))
        kept = self._folder / "cache"
        self._compiled = len(list(kept.iterdir())) if kept.is_dir() else 0


def build(options: None, context: BuildContext) -> DeepGemmDense:
    """Build the component for dense products; it has no options.

    Args:
        options: None.
        context: says where compiled kernels are kept.
    """
    folder = kernel_folder(context.cache_dir)
    if folder is not None:
        folder = folder / "deep_gemm"
        # The library's only way to be told; it looks when it first compiles.
        os.environ["DG_JIT_CACHE_DIR"] = str(folder)
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return DeepGemmDense(
        catalogue().open(context.cache_dir),
        DeepGemmCalls.load(),
        folder=folder,
        is_hopper=properties.major == 9 and context.needs.compute == "bfloat16",
        cores=properties.multi_processor_count,
    )


def _can_multiply(spec: DenseSpec, x_dtype: torch.dtype, weight: torch.Tensor) -> bool:
    rounded = not number_format(spec.activation_format).is_plain
    out_bytes = ELEMENT_BYTES[spec.out_dtype]
    return (
        (rounded or x_dtype is _BF16)
        and weight.dtype is _BF16
        and spec.in_width * ELEMENT_BYTES["bfloat16"] % ACCESS_BYTES == 0
        and spec.out_width * out_bytes % ACCESS_BYTES == 0
        and (spec.groups == 1 or spec.out_dtype == "bfloat16")
    )
