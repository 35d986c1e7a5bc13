"""How are runs of row-wise operators done in one pass by kernels in TileLang?

With the bits of the operators one after the other, except that a norm may sum in another order than
the kernel of the norm alone.

Shapes: T rows, D width, H heads, P rotated pairs, S residual streams, I expert width.
"""

from __future__ import annotations

import torch
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.interfaces.transform import Rounded, Transform
from deepinfer_core.numeric import number_format as find_format

from deepinfer_nvidia.kernels.arguments import check, sliced, strided_rows
from deepinfer_nvidia.kernels.launch import launches
from deepinfer_nvidia.transform import run_forms as forms

__all__ = ["TileLangRuns"]

_BF16, _FP32 = torch.bfloat16, torch.float32


class TileLangRuns(Transform):
    """The runs.

    Args:
        kernels: runs them.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._norm_cast = launches(kernels, forms.norm_cast_kernel)
        self._collapse_norm = launches(kernels, forms.collapse_norm_kernel)
        self._expand_norm = launches(kernels, forms.expand_norm_kernel)
        self._norm_rope = launches(kernels, forms.norm_rope_kernel)
        self._rope_cast = launches(kernels, forms.rope_cast_kernel)
        self._swiglu_cast = launches(kernels, forms.swiglu_cast_kernel)
        self._add_expand = launches(kernels, forms.add_expand_kernel)

    def rms_norm_rounded(
        self, plan: Plan, x_TD: torch.Tensor, weight_D: torch.Tensor, eps: float, rounded: Rounded
    ) -> None:
        """Norm and round."""
        rows, width = x_TD.shape
        rounded_TD = _place(rounded, _BF16, rows, width)
        if not x_TD.numel():
            return
        x_TD, row_stride = strided_rows(x_TD)
        norm = self._norm_cast(
            width, x_TD.dtype, weight_D.dtype, eps, rounded.number_format, row_stride
        )
        norm(x_TD=x_TD, weight_D=check(weight_D, weight_D.dtype, width), rounded_TD=rounded_TD)

    def collapse_norm(
        self,
        plan: Plan,
        trunk_TSD: torch.Tensor,
        pre_TS: torch.Tensor,
        weight_D: torch.Tensor,
        eps: float,
        out_TD: torch.Tensor,
        rounded: Rounded | None = None,
    ) -> None:
        """Sum the streams, norm the sum, and round it where that is wanted."""
        rows, streams, width = trunk_TSD.shape
        places, name = _places(rounded, rows, width)
        if not rows:
            return
        dtype = trunk_TSD.dtype
        collapse = self._collapse_norm(streams, width, dtype, weight_D.dtype, eps, name)
        collapse(
            trunk_TSD=check(trunk_TSD, dtype, rows, streams, width),
            pre_TS=check(pre_TS, _FP32, rows, streams),
            weight_D=check(weight_D, weight_D.dtype, width),
            out_TD=check(out_TD, dtype, rows, width),
            **places,
        )

    def expand_norm(
        self,
        plan: Plan,
        trunk_TSD: torch.Tensor,
        y_TD: torch.Tensor,
        post_TS: torch.Tensor,
        comb_TSS: torch.Tensor,
        pre_TS: torch.Tensor,
        weight_D: torch.Tensor,
        eps: float,
        out_TSD: torch.Tensor,
        normed_TD: torch.Tensor,
        rounded: Rounded | None = None,
    ) -> None:
        """Mix the streams, sum and norm them, and round that where it is wanted."""
        rows, streams, width = trunk_TSD.shape
        places, name = _places(rounded, rows, width)
        if not rows:
            return
        dtype = trunk_TSD.dtype
        expand = self._expand_norm(streams, width, dtype, weight_D.dtype, eps, name)
        expand(
            trunk_TSD=check(trunk_TSD, dtype, rows, streams, width),
            y_TD=check(y_TD, dtype, rows, width),
            post_TS=check(post_TS, _FP32, rows, streams),
            comb_TSS=check(comb_TSS, _FP32, rows, streams, streams),
            pre_TS=check(pre_TS, _FP32, rows, streams),
            weight_D=check(weight_D, weight_D.dtype, width),
            out_TSD=check(out_TSD, dtype, rows, streams, width),
            normed_TD=check(normed_TD, dtype, rows, width),
            **places,
        )

    def norm_rope(
        self,
        plan: Plan,
        x_TD: torch.Tensor,
        weight_D: torch.Tensor,
        eps: float,
        cosine_TP: torch.Tensor,
        sine_TP: torch.Tensor,
        normed_TD: torch.Tensor | None,
        out_TD: torch.Tensor,
    ) -> None:
        """Norm and rotate."""
        rows, width = x_TD.shape
        if not x_TD.numel():
            return
        x_TD, row_stride = strided_rows(x_TD)
        dtype, pairs = x_TD.dtype, cosine_TP.shape[1]
        keeps_normed = normed_TD is not None
        kept = {} if normed_TD is None else {"normed_TD": check(normed_TD, dtype, rows, width)}
        norm = self._norm_rope((width, pairs), dtype, weight_D.dtype, eps, keeps_normed, row_stride)
        norm(
            x_TD=x_TD,
            weight_D=check(weight_D, weight_D.dtype, width),
            cosine_TP=check(cosine_TP, _FP32, rows, pairs),
            sine_TP=check(sine_TP, _FP32, rows, pairs),
            **kept,
            out_TD=check(out_TD, dtype, rows, width),
        )

    def rope_rounded(
        self,
        plan: Plan,
        x_THD: torch.Tensor,
        cosine_TP: torch.Tensor,
        sine_TP: torch.Tensor,
        rounded: Rounded,
        *,
        inverse: bool = False,
    ) -> None:
        """Rotate and round; a plain dtype rounds nothing, and the rotated rows are copied."""
        if find_format(rounded.number_format).is_plain:
            super().rope_rounded(plan, x_THD, cosine_TP, sine_TP, rounded, inverse=inverse)
            return
        rows, heads, width = x_THD.shape
        dtype, out_dtype = x_THD.dtype, rounded.out_TD.dtype
        rounded_TX = _place(rounded, out_dtype, rows, heads * width)
        if not x_THD.numel():
            return
        pairs = cosine_TP.shape[1]
        x_THD = sliced(x_THD)
        rotate = self._rope_cast(
            (heads, width, pairs),
            dtype,
            out_dtype,
            inverse,
            rounded.number_format,
            x_THD.stride()[:2],
        )
        rotate(
            x_THD=x_THD,
            cosine_TP=check(cosine_TP, _FP32, rows, pairs),
            sine_TP=check(sine_TP, _FP32, rows, pairs),
            rounded_TX=rounded_TX,
        )

    def swiglu_rounded(
        self,
        plan: Plan,
        gate_up_R2I: torch.Tensor,
        route_R: torch.Tensor | None,
        limit: float,
        rounded: Rounded,
    ) -> None:
        """Activate and round."""
        rows, width = gate_up_R2I.shape[0], gate_up_R2I.shape[1] // 2
        rounded_RI = _place(rounded, _BF16, rows, width)
        if not gate_up_R2I.numel():
            return
        gate_up_R2I, row_stride = strided_rows(gate_up_R2I)
        has_route = route_R is not None
        routes = {} if route_R is None else {"route_R": check(route_R, _FP32, rows)}
        activate = self._swiglu_cast(
            width, gate_up_R2I.dtype, limit, has_route, rounded.number_format, row_stride
        )
        activate(gate_up_R2I=gate_up_R2I, **routes, rounded_RI=rounded_RI)

    def add_expand(
        self,
        plan: Plan,
        trunk_TSD: torch.Tensor,
        x_TD: torch.Tensor,
        y_TD: torch.Tensor,
        post_TS: torch.Tensor,
        comb_TSS: torch.Tensor,
        out_TSD: torch.Tensor,
    ) -> None:
        """Mix the streams and add the sum."""
        rows, streams, width = trunk_TSD.shape
        if not rows:
            return
        dtype = trunk_TSD.dtype
        expand = self._add_expand(streams, width, dtype)
        expand(
            trunk_TSD=check(trunk_TSD, dtype, rows, streams, width),
            x_TD=check(x_TD, _FP32, rows, width),
            y_TD=check(y_TD, _FP32, rows, width),
            post_TS=check(post_TS, _FP32, rows, streams),
            comb_TSS=check(comb_TSS, _FP32, rows, streams, streams),
            out_TSD=check(out_TSD, dtype, rows, streams, width),
        )


def _place(rounded: Rounded, dtype: torch.dtype, rows: int, width: int) -> torch.Tensor:
    """Where rounded rows go, if whole groups of them fit into a row."""
    find_format(rounded.number_format).check_width(width)
    return check(rounded.out_TD, dtype, rows, width)


def _places(
    rounded: Rounded | None, rows: int, width: int
) -> tuple[dict[str, torch.Tensor], str | None]:
    """The argument for rounded rows and their format, if there is one."""
    if rounded is None:
        return {}, None
    return {"rounded_TD": _place(rounded, _BF16, rows, width)}, rounded.number_format
