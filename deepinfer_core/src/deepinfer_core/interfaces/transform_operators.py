"""What does each row-wise operator compute, besides products and attention?

Every operator works on rows independently, writes into the caller's buffers and never synchronises
with the host. Sums are fp32 (fp64 when the inputs are fp64), whatever the storage dtype.

Shapes: T rows, D width, H heads, S residual streams (4), M = S * (2 + S) mixes, E experts,
k experts per token, C hash columns, I expert width, W image rows (a flag per row).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepinfer_core.interfaces.component import Component, Plan

if TYPE_CHECKING:
    import torch

__all__ = ["EngramHash", "MixSpec", "TransformOperators", "TransformSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformSpec:
    """Widths that a backend may compile for.

    Attributes:
        hidden_width: width of one residual stream.
        streams: number of residual streams.
        compute: dtype name of activations.
    """

    hidden_width: int
    streams: int
    compute: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MixSpec:
    """Constants of the hyper-connection mixes.

    Attributes:
        sinkhorn_iterations: number of column normalisations.
        eps: added to the pre mixes and inside Sinkhorn (hc_eps).
        norm_eps: added to the mean square of the trunk.
    """

    sinkhorn_iterations: int
    eps: float
    norm_eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngramHash:
    """The n-gram hash of one Engram layer; all tensors int64, for a model on the device of the ids.

    Attributes:
        multiplier_N: one odd multiplier a lookback distance, [n-gram size].
        prime_C: table size of each column, [C], n-gram order major, then head.
        offset_C: first row of each column's table, [C].
        order_C: n-gram order of each column (2 and up), [C].
        on_host: the same on the host, for a component that compiles numbers in; None: these are.
    """

    multiplier_N: torch.Tensor
    prime_C: torch.Tensor
    offset_C: torch.Tensor
    order_C: torch.Tensor
    on_host: EngramHash | None = None


class TransformOperators(Component):
    """Norms, rotary positions, hyper-connections, Engram, routing and the expert activation."""

    @abstractmethod
    def plan(self, spec: TransformSpec, max_rows: int) -> Plan:
        """Prepare for at most ``max_rows`` rows of the given widths."""

    @abstractmethod
    def rms_norm(
        self,
        plan: Plan,
        x_TD: torch.Tensor,
        weight_D: torch.Tensor,
        eps: float,
        out_TD: torch.Tensor,
    ) -> None:
        """``x * rsqrt(mean(x^2) + eps) * weight`` over the last axis, rounded once at the end."""

    def add(self, plan: Plan, x_TD: torch.Tensor, y_TD: torch.Tensor, out_TD: torch.Tensor) -> None:
        """``out = x + y`` of accumulators, rounded once; may overwrite x.

        What adds and rounds in one pass replaces this.
        """
        out_TD.copy_(x_TD.add_(y_TD))

    @abstractmethod
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
        """Rotate the last 2 * P channels in interleaved pairs; the others are copied.

        Args:
            plan: from ``plan``.
            x_THD: [T, H, D].
            cosine_TP: fp32 cosines of each row's angles, [T, P].
            sine_TP: fp32 sines.
            out_THD: result; may be ``x_THD`` itself.
            inverse: rotate by the negative angle.
        """

    @abstractmethod
    def fake_quantise(
        self, plan: Plan, x_TD: torch.Tensor, number_format: str, out_TD: torch.Tensor
    ) -> None:
        """Round to a block format and back along the last axis; a plain dtype name copies.

        A rounded result may be bfloat16 whatever the rows are: it holds every value of a format.
        """

    def prepare_mixes(self, fn_MK: torch.Tensor) -> torch.Tensor:
        """Take over a projection of ``mhc_mixes``, once, at load; that is what it is called with.

        What multiplies the projection as it is needs no other form.

        Args:
            fn_MK: fp32 [M, S * D], the norm's weight already folded in.

        Returns:
            The projection in a form that is the backend's own affair.
        """
        return fn_MK

    @abstractmethod
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
        """Compute a sublayer's pre, post and comb mixes from the trunk.

        Args:
            plan: from ``plan``.
            trunk_TSD: [T, S, D]; flattened stream-major for the product.
            projection: from ``prepare_mixes``.
            base_M: fp32 [M].
            scale_3: fp32, one factor each for pre, post and comb.
            spec: constants.
            pre_TS: fp32 out, ``sigmoid + eps``.
            post_TS: fp32 out, ``2 * sigmoid``.
            comb_TSS: fp32 out, [T, source, destination], columns sum to 1.

        Source: manifold-constrained hyper-connections of DeepSeek-V4.1-Flash.
        """

    @abstractmethod
    def mhc_collapse(
        self, plan: Plan, trunk_TSD: torch.Tensor, pre_TS: torch.Tensor, out_TD: torch.Tensor
    ) -> None:
        """``out = sum over streams of pre * trunk``."""

    @abstractmethod
    def mhc_expand(
        self,
        plan: Plan,
        trunk_TSD: torch.Tensor,
        y_TD: torch.Tensor,
        post_TS: torch.Tensor,
        comb_TSS: torch.Tensor,
        out_TSD: torch.Tensor,
    ) -> None:
        """``out[n] = post[n] * y + sum over m of comb[m][n] * trunk[m]``; may write in place."""

    @abstractmethod
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
        """Choose experts by ``sqrt(softplus(logit)) + bias``; weigh them without the bias.

        Args:
            plan: from ``plan``.
            logits_TE: fp32.
            bias_E: fp32 selection bias of text rows.
            image_bias_E: fp32 selection bias of rows inside an image span.
            image_T: bool.
            scaling: factor on the normalised weights.
            expert_Tk: int64 out, best first; ties go to the lower index.
            weight_Tk: fp32 out.
        """

    @abstractmethod
    def swiglu(
        self,
        plan: Plan,
        gate_up_R2I: torch.Tensor,
        route_R: torch.Tensor | None,
        limit: float,
        out_RI: torch.Tensor,
    ) -> None:
        """``silu(min(gate, limit)) * clamp(up, +-limit) * route``; gate is the first half."""

    @abstractmethod
    def engram_rows(
        self, plan: Plan, compressed_TN: torch.Tensor, spec: EngramHash, row_TC: torch.Tensor
    ) -> None:
        """Hash n-grams of compressed ids to table rows.

        Args:
            plan: from ``plan``.
            compressed_TN: int64, ids at distance 0, 1, .. n-1 before each row, padding filled in.
            spec: the layer's multipliers and tables.
            row_TC: int64 out.
        """

    @abstractmethod
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
        """Add the gated n-gram value to every stream, but not to image rows; may be in place."""
