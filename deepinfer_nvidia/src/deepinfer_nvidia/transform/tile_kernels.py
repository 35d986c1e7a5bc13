"""Which row-wise operators does the library tile_kernels compute, behind the same interface?

| operator | computed by tile_kernels |
|---|---|
| norm | one dtype all round, up to 8192 channels in whole sixteens |
| rotation | 32 or 64 pairs, bf16 or fp32 |
| collapse, expansion | bf16, whole 128 channels |

All else is computed by the kernels of ``nvidia.tilelang``. Who computes follows from dtypes and
shapes, never from what a call did. The other operators stay with those kernels, because the
library's own forms differ from the interface:

* its rounding to block formats and back works in place only, and makes four-bit numbers of a NaN;
* its routing stops the device, and with it every request, at a logit that is not finite;
* its activation returns new memory, which would be copied once more;
* its n-gram hash takes and gives int32; its gate takes keys and values as one tensor, and opens a
  gate whose dot product is zero by a thousandth;
* it splits the mixes of hyper-connections, but does not multiply for them in fp32.

Shapes: T rows, D width, H heads, P rotated pairs, S residual streams.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.interfaces.transform import Transform
from deepinfer_core.plugin import BuildContext

from deepinfer_nvidia.kernels.arguments import check, out_rows, sliced, strided_rows
from deepinfer_nvidia.kernels.catalogue import catalogue
from deepinfer_nvidia.kernels.vectors import ACCESS_BYTES
from deepinfer_nvidia.transform.tilelang import TileLangTransform

__all__ = ["TileKernelsCalls", "TileKernelsTransform", "build"]

_BF16, _FP32 = torch.bfloat16, torch.float32
_NORM_WIDTH_STEP = 16
_LARGEST_NORM_WIDTH = 8192
_PAIRS = (32, 64)
_STREAM_WIDTH_STEP = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class TileKernelsCalls:
    """The functions of the library that are called; those of release 2.1.0.

    Attributes:
        norm_forward: of ``tile_kernels.quant``.
        apply_rotary: of ``tile_kernels.transform``.
        mhc_pre_apply_mix_fwd: of ``tile_kernels.mhc``.
        mhc_post_fwd: of ``tile_kernels.mhc``.
    """

    norm_forward: Callable[..., object]
    apply_rotary: Callable[..., object]
    mhc_pre_apply_mix_fwd: Callable[..., object]
    mhc_post_fwd: Callable[..., object]

    @classmethod
    def load(cls) -> TileKernelsCalls:
        """Import the library.

        Raises:
            ImportError: it is not installed.
        """
        from tile_kernels import mhc, quant, transform

        return cls(
            norm_forward=quant.norm_forward,
            apply_rotary=transform.apply_rotary,
            mhc_pre_apply_mix_fwd=mhc.mhc_pre_apply_mix_fwd,
            mhc_post_fwd=mhc.mhc_post_fwd,
        )


class TileKernelsTransform(TileLangTransform):
    """All row-wise operators, those of the table by the library.

    The library compiles a kernel for each width and distance between rows, for no number of rows.
    Its switches of the whole process are left as they are.

    Args:
        kernels: run what the library does not.
        calls: of the library.
    """

    def __init__(self, kernels: Kernels, calls: TileKernelsCalls) -> None:
        super().__init__(kernels)
        self._calls = calls
        self._seen: set[Hashable] = set()

    # Runs of operators, some of which the library computes.
    rms_norm_rounded = Transform.rms_norm_rounded
    collapse_norm = Transform.collapse_norm
    expand_norm = Transform.expand_norm
    norm_rope = Transform.norm_rope
    rope_rounded = Transform.rope_rounded
    add_expand = Transform.add_expand

    @property
    def kernels_built(self) -> int | None:
        """Kernels of both so far; the library's by what it compiles for."""
        own = super().kernels_built
        return None if own is None else own + len(self._seen)

    def rms_norm(
        self,
        plan: Plan,
        x_TD: torch.Tensor,
        weight_D: torch.Tensor,
        eps: float,
        out_TD: torch.Tensor,
    ) -> None:
        """Normalise the last axis; one rounding at the end."""
        if not _can_normalise(x_TD, weight_D, out_TD):
            super().rms_norm(plan, x_TD, weight_D, eps, out_TD)
            return
        width = x_TD.shape[-1]
        x_TD, row_stride = strided_rows(x_TD)
        if row_stride % _NORM_WIDTH_STEP:
            x_TD = x_TD.contiguous()
        weight_D = check(weight_D, weight_D.dtype, width)
        self._seen.add(("norm", width, x_TD.dtype, eps))
        self._calls.norm_forward(x_TD, weight_D, eps, out=out_rows(out_TD))

    def rope(
        self,
        plan: Plan,
        x_THD: torch.Tensor,
        cosine_TP: torch.Tensor,
        sine_TP: torch.Tensor,
        out_THD: torch.Tensor,
        *,
        inverse: bool = False,
    ) -> None:
        """Rotate pairs in place; what goes elsewhere is copied there first.

        A product and a sum are one rounding here, so bits differ from those of the twin.
        """
        is_in_place = out_THD.data_ptr() == x_THD.data_ptr()
        if not _can_rotate(out_THD, cosine_TP.shape[-1]):
            super().rope(plan, x_THD, cosine_TP, sine_TP, out_THD, inverse=inverse)
            return
        if not is_in_place:
            out_THD.copy_(x_THD)
        rows, _, width = out_THD.shape
        pairs = cosine_TP.shape[-1]
        angles = (check(angle, _FP32, rows, pairs) for angle in (cosine_TP, sine_TP))
        turned_THR = sliced(out_THD)[..., width - 2 * pairs :]
        self._seen.add(("rotation", turned_THR.dtype, turned_THR.stride(), pairs, inverse))
        self._calls.apply_rotary(
            turned_THR, torch.cat(tuple(angles), 1), interleaved=True, conjugate=inverse
        )

    def mhc_collapse(
        self, plan: Plan, trunk_TSD: torch.Tensor, pre_TS: torch.Tensor, out_TD: torch.Tensor
    ) -> None:
        """Sum the streams."""
        if not _can_mix(trunk_TSD, out_TD):
            super().mhc_collapse(plan, trunk_TSD, pre_TS, out_TD)
            return
        rows, streams, width = trunk_TSD.shape
        self._seen.add(("collapse", streams, width))
        self._calls.mhc_pre_apply_mix_fwd(
            check(trunk_TSD, _BF16, rows, streams, width),
            check(pre_TS, _FP32, rows, streams),
            check(out_TD, _BF16, rows, width),
        )

    def mhc_expand(
        self,
        plan: Plan,
        trunk_TSD: torch.Tensor,
        y_TD: torch.Tensor,
        post_TS: torch.Tensor,
        comb_TSS: torch.Tensor,
        out_TSD: torch.Tensor,
    ) -> None:
        """Mix the streams and add the output.

        In place too: a block of the library's kernel has read the channels of a row when it writes
        them, and writes no others.
        """
        if not _can_mix(trunk_TSD, out_TSD) or y_TD.dtype is not _BF16:
            super().mhc_expand(plan, trunk_TSD, y_TD, post_TS, comb_TSS, out_TSD)
            return
        rows, streams, width = trunk_TSD.shape
        self._seen.add(("expansion", streams, width))
        # The library has an axis of sequences in front.
        self._calls.mhc_post_fwd(
            check(y_TD, _BF16, rows, width)[None],
            check(trunk_TSD, _BF16, rows, streams, width)[None],
            check(post_TS, _FP32, rows, streams)[None, ..., None],
            check(comb_TSS, _FP32, rows, streams, streams)[None],
            out=check(out_TSD, _BF16, rows, streams, width)[None],
        )


def build(options: None, context: BuildContext) -> TileKernelsTransform:
    """Build the component; it has no options.

    Args:
        options: None.
        context: says where compiled kernels are kept.
    """
    return TileKernelsTransform(catalogue().open(context.cache_dir), TileKernelsCalls.load())


def _can_normalise(x: torch.Tensor, weight_D: torch.Tensor, out: torch.Tensor) -> bool:
    width = x.shape[-1]
    return (
        x.numel() > 0
        and x.dtype in (_BF16, _FP32)
        and x.dtype is weight_D.dtype is out.dtype
        and width % _NORM_WIDTH_STEP == 0
        and width <= _LARGEST_NORM_WIDTH
    )


def _can_rotate(out_THD: torch.Tensor, pairs: int) -> bool:
    """Whether the last channels can be turned where they lie, by whole vectors."""
    if not out_THD.numel() or out_THD.dtype not in (_BF16, _FP32) or pairs not in _PAIRS:
        return False
    vector = ACCESS_BYTES // out_THD.itemsize
    # The distance of a single row or head from the next means nothing.
    steps = [step for step, count in zip(out_THD.stride(), out_THD.shape, strict=True) if count > 1]
    return (
        steps.pop() == 1
        and out_THD.data_ptr() % ACCESS_BYTES == 0
        and all(step % vector == 0 for step in (*steps, out_THD.shape[-1]))
    )


def _can_mix(trunk_TSD: torch.Tensor, out: torch.Tensor) -> bool:
    return (
        trunk_TSD.numel() > 0
        and trunk_TSD.dtype is _BF16
        and out.dtype is _BF16
        and trunk_TSD.shape[-1] % _STREAM_WIDTH_STEP == 0
    )
