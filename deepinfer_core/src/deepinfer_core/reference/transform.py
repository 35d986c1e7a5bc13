"""How are the row-wise operators computed?

Inputs of any compute dtype are widened to the accumulation dtype, and each result is rounded once,
when it is copied into the caller's buffer.
"""

from __future__ import annotations

import torch

from deepinfer_core import numeric
from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.interfaces.transform import EngramHash, MixSpec, Transform, TransformSpec
from deepinfer_core.plugin import BuildContext
from deepinfer_core.reference import engram, hyper_connections, routing
from deepinfer_core.reference.arithmetic import accumulation_dtype, mean_square, silu
from deepinfer_core.reference.promises import PROMISES

__all__ = ["ReferenceTransform", "build"]


class ReferenceTransform(Transform):
    """All row-wise operators; the longer formulas live in their own modules."""

    @property
    def properties(self) -> Properties:
        """The promises of this component."""
        return PROMISES

    def plan(self, spec: TransformSpec, max_rows: int) -> Plan:
        """Nothing to prepare."""
        return Plan(max_rows=max_rows)

    def rms_norm(
        self,
        plan: Plan,
        x_TD: torch.Tensor,
        weight_D: torch.Tensor,
        eps: float,
        out_TD: torch.Tensor,
    ) -> None:
        """Normalise the last axis."""
        x = x_TD.to(accumulation_dtype(x_TD.dtype))
        factor = torch.rsqrt(mean_square(x) + eps)[..., None]
        out_TD.copy_(x * factor * weight_D)

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
        """Rotate pairs; both members are read before either is written."""
        plain = x_THD.shape[-1] - 2 * cosine_TP.shape[-1]
        pairs = x_THD[..., plain:].to(accumulation_dtype(x_THD.dtype))
        even, odd = pairs[..., 0::2], pairs[..., 1::2]
        cosine, sine = cosine_TP[:, None], sine_TP[:, None]
        if inverse:
            sine = -sine
        rotated = torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1)
        if out_THD.data_ptr() != x_THD.data_ptr():
            out_THD[..., :plain] = x_THD[..., :plain]
        out_THD[..., plain:] = rotated.flatten(-2)

    def fake_quantise(
        self, plan: Plan, x_TD: torch.Tensor, number_format: str, out_TD: torch.Tensor
    ) -> None:
        """Round as the number formats say."""
        is_plain = numeric.number_format(number_format).is_plain
        out_TD.copy_(x_TD if is_plain else numeric.fake_quantise(x_TD, number_format))

    def mhc_mixes(
        self,
        plan: Plan,
        trunk_TSD: torch.Tensor,
        projection: torch.Tensor,
        base_M: torch.Tensor,
        scale_3: torch.Tensor,
        spec: MixSpec,
        pre_TS: torch.Tensor,
        post_TS: torch.Tensor,
        comb_TSS: torch.Tensor,
    ) -> None:
        """Compute the three mixes."""
        pre, post, comb = hyper_connections.mixes(trunk_TSD, projection, base_M, scale_3, spec)
        pre_TS.copy_(pre)
        post_TS.copy_(post)
        comb_TSS.copy_(comb)

    def mhc_collapse(
        self, plan: Plan, trunk_TSD: torch.Tensor, pre_TS: torch.Tensor, out_TD: torch.Tensor
    ) -> None:
        """Sum the streams."""
        out_TD.copy_(hyper_connections.collapse(trunk_TSD, pre_TS))

    def mhc_expand(
        self,
        plan: Plan,
        trunk_TSD: torch.Tensor,
        y_TD: torch.Tensor,
        post_TS: torch.Tensor,
        comb_TSS: torch.Tensor,
        out_TSD: torch.Tensor,
    ) -> None:
        """Mix the streams and add the output."""
        out_TSD.copy_(hyper_connections.expand(trunk_TSD, y_TD, post_TS, comb_TSS))

    def gate_topk(
        self,
        plan: Plan,
        logits_TE: torch.Tensor,
        bias_E: torch.Tensor,
        image_bias_E: torch.Tensor,
        image_T: torch.Tensor,
        scaling: float,
        expert_Tk: torch.Tensor,
        weight_Tk: torch.Tensor,
    ) -> None:
        """Choose and weigh."""
        expert, weight = routing.choose_experts(
            logits_TE, bias_E, image_bias_E, image_T, scaling, expert_Tk.shape[1]
        )
        expert_Tk.copy_(expert)
        weight_Tk.copy_(weight)

    def swiglu(
        self,
        plan: Plan,
        gate_up_R2I: torch.Tensor,
        route_R: torch.Tensor | None,
        limit: float,
        out_RI: torch.Tensor,
    ) -> None:
        """Activate."""
        gate, up = gate_up_R2I.to(accumulation_dtype(gate_up_R2I.dtype)).chunk(2, -1)
        active = silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)
        out_RI.copy_(active if route_R is None else active * route_R[:, None])

    def engram_rows(
        self, plan: Plan, compressed_TN: torch.Tensor, spec: EngramHash, row_TC: torch.Tensor
    ) -> None:
        """Hash."""
        row_TC.copy_(engram.table_rows(compressed_TN, spec))

    def engram_gate(
        self,
        plan: Plan,
        trunk_TSD: torch.Tensor,
        key_TSD: torch.Tensor,
        value_TD: torch.Tensor,
        query_weight_SD: torch.Tensor,
        key_weight_SD: torch.Tensor,
        image_T: torch.Tensor,
        norm_eps: float,
        out_TSD: torch.Tensor,
    ) -> None:
        """Add the gated values."""
        out_TSD.copy_(
            engram.gated_streams(
                trunk_TSD,
                key_TSD,
                value_TD,
                query_weight_SD,
                key_weight_SD,
                image_T,
                norm_eps,
            )
        )


def build(options: None, context: BuildContext) -> ReferenceTransform:
    """Build the component; it has no options."""
    return ReferenceTransform()
