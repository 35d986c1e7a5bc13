"""Which row-wise operators does the model ask for, one by one and several in one call?

Behind ``TransformOperators`` come the runs of them that the model makes again and again. Here each
run is its operators, one after the other, with the same bits; what does it in one pass replaces it.

Shapes: T rows, D width, H heads, P rotated pairs, S residual streams, I expert width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepinfer_core.interfaces.transform_operators import (
    EngramHash,
    MixSpec,
    TransformOperators,
    TransformSpec,
)

if TYPE_CHECKING:
    import torch

    from deepinfer_core.interfaces.component import Plan

__all__ = ["EngramHash", "MixSpec", "Rounded", "Transform", "TransformSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounded:
    """Where rows go as a product wants them: what ``fake_quantise`` makes of a result.

    Attributes:
        number_format: a block format, whose groups divide the rows.
        out_TD: out, bfloat16 or the dtype of the rows, without gaps.
    """

    number_format: str
    out_TD: torch.Tensor


class Transform(TransformOperators):
    """All row-wise operators, and their runs."""

    def rms_norm_rounded(
        self, plan: Plan, x_TD: torch.Tensor, weight_D: torch.Tensor, eps: float, rounded: Rounded
    ) -> None:
        """``rms_norm`` into the dtype of the rows, then rounded."""
        normed_TD = x_TD.new_empty(x_TD.shape)
        self.rms_norm(plan, x_TD, weight_D, eps, normed_TD)
        self.fake_quantise(plan, normed_TD, rounded.number_format, rounded.out_TD)

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
        """``mhc_collapse`` into the dtype of the trunk, then ``rms_norm``; the same rounded too."""
        collapsed_TD = trunk_TSD.new_empty(out_TD.shape)
        self.mhc_collapse(plan, trunk_TSD, pre_TS, collapsed_TD)
        self.rms_norm(plan, collapsed_TD, weight_D, eps, out_TD)
        if rounded is not None:
            self.fake_quantise(plan, out_TD, rounded.number_format, rounded.out_TD)

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
        """``mhc_expand``, then ``collapse_norm`` of its result; may write streams in place."""
        self.mhc_expand(plan, trunk_TSD, y_TD, post_TS, comb_TSS, out_TSD)
        self.collapse_norm(plan, out_TSD, pre_TS, weight_D, eps, normed_TD, rounded)

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
        """``rms_norm``, then ``rope`` of each row as one head.

        Args:
            plan: from ``plan``.
            x_TD: rows.
            weight_D: of the norm.
            eps: of the norm.
            cosine_TP: as in ``rope``.
            sine_TP: as in ``rope``.
            normed_TD: out, what the norm gave; None if nobody wants it.
            out_TD: out, the same rotated.
        """
        if normed_TD is None:
            normed_TD = out_TD
        self.rms_norm(plan, x_TD, weight_D, eps, normed_TD)
        self.rope(plan, normed_TD.unsqueeze(1), cosine_TP, sine_TP, out_TD.unsqueeze(1))

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
        """``rope``, then rounded, to rows [T, H * D]; may overwrite ``x_THD``."""
        self.rope(plan, x_THD, cosine_TP, sine_TP, x_THD, inverse=inverse)
        self.fake_quantise(plan, x_THD.flatten(1), rounded.number_format, rounded.out_TD)

    def swiglu_rounded(
        self,
        plan: Plan,
        gate_up_R2I: torch.Tensor,
        route_R: torch.Tensor | None,
        limit: float,
        rounded: Rounded,
    ) -> None:
        """``swiglu`` into the dtype of gate and up, then rounded."""
        active_RI = gate_up_R2I.new_empty(rounded.out_TD.shape)
        self.swiglu(plan, gate_up_R2I, route_R, limit, active_RI)
        self.fake_quantise(plan, active_RI, rounded.number_format, rounded.out_TD)

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
        """``add`` of two accumulators into the dtype of the trunk, then ``mhc_expand``."""
        sum_TD = trunk_TSD.new_empty(x_TD.shape)
        self.add(plan, x_TD, y_TD, sum_TD)
        self.mhc_expand(plan, trunk_TSD, sum_TD, post_TS, comb_TSS, out_TSD)
