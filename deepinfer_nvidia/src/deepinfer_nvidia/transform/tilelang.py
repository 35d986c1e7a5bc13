"""How are the row-wise operators computed by kernels in TileLang?

Rows of bf16 or fp32 are widened element by element, sums are fp32, and each result is rounded once.
Rotation, rounding, collapse, expansion and hashes give the bits of ``core.reference``. A kernel is
compiled for each width, dtype and distance between rows, never for a number of rows.

Shapes: T rows, D width, H heads, P rotated pairs, E experts, k experts a row, I expert width.
"""

from __future__ import annotations

import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.interfaces.transform import TransformSpec
from deepinfer_core.numeric import number_format as find_format
from deepinfer_core.plugin import BuildContext

from deepinfer_nvidia.kernels.arguments import check, dtype_name, out_rows, sliced, strided_rows
from deepinfer_nvidia.kernels.launch import kernels_for, launches
from deepinfer_nvidia.transform.engram import TileLangEngram
from deepinfer_nvidia.transform.forms import (
    activation_kernel,
    cast_kernel,
    norm_kernel,
    rotation_kernel,
    routing_kernel,
)
from deepinfer_nvidia.transform.runs import TileLangRuns
from deepinfer_nvidia.transform.streams import TileLangStreams

__all__ = ["TileLangTransform", "build"]

_FP32, _INT64, _BOOL = torch.float32, torch.int64, torch.bool
_MOST_CHOSEN = 32
"""A lane of a warp each."""


class TileLangTransform(TileLangRuns, TileLangStreams, TileLangEngram):
    """All row-wise operators.

    Args:
        kernels: runs them.
    """

    def __init__(self, kernels: Kernels) -> None:
        TileLangStreams.__init__(self, kernels)
        TileLangEngram.__init__(self, kernels)
        TileLangRuns.__init__(self, kernels)
        self._norm = launches(kernels, norm_kernel)
        self._rotation = launches(kernels, rotation_kernel)
        self._cast = launches(kernels, cast_kernel)
        self._routing = launches(kernels, routing_kernel)
        self._activation = launches(kernels, activation_kernel)

    @property
    def properties(self) -> Properties:
        """The promises of this component."""
        return Properties(batch_invariant="always", deterministic="always", graph_safe="always")

    @property
    def kernels_built(self) -> int | None:
        """Kernels that were compiled or loaded so far."""
        return self._kernels.built

    def plan(self, spec: TransformSpec, max_rows: int) -> Plan:
        """Check what the kernels were written for.

        Raises:
            NotSupported: fp64.
        """
        dtype_name(find_format(spec.compute).storage)
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
        if not x_TD.numel():
            return
        x_TD, row_stride = strided_rows(x_TD)
        width = x_TD.shape[1]
        norm = self._norm(width, x_TD.dtype, weight_D.dtype, out_TD.dtype, eps, row_stride)
        norm(
            x_TD=x_TD,
            weight_D=check(weight_D, weight_D.dtype, width),
            out_TD=out_rows(out_TD),
        )

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
        """Rotate pairs; a thread reads its pairs before it writes them."""
        rows, heads, width = x_THD.shape
        if not x_THD.numel():
            return
        pairs = cosine_TP.shape[-1]
        is_in_place = out_THD.data_ptr() == x_THD.data_ptr()
        x_THD = sliced(x_THD)
        out_THD = x_THD if is_in_place else check(out_THD, x_THD.dtype, rows, heads, width)
        rotate = self._rotation(
            (heads, width, pairs),
            x_THD.dtype,
            inverse,
            is_in_place,
            x_THD.stride()[:2],
            out_THD.stride()[:2],
        )
        rotate(
            x_THD=x_THD,
            cosine_TP=check(cosine_TP, _FP32, rows, pairs),
            sine_TP=check(sine_TP, _FP32, rows, pairs),
            out_THD=out_THD,
        )

    def fake_quantise(
        self, plan: Plan, x_TD: torch.Tensor, number_format: str, out_TD: torch.Tensor
    ) -> None:
        """Round as the number formats say."""
        form = find_format(number_format)
        if form.is_plain:
            out_TD.copy_(x_TD)
            return
        form.check_width(x_TD.shape[-1])
        if not x_TD.numel():
            return
        x_TD, row_stride = strided_rows(x_TD)
        cast = self._cast(x_TD.shape[1], x_TD.dtype, out_TD.dtype, number_format, row_stride)
        cast(x_TD=x_TD, out_TD=check(out_rows(out_TD), out_TD.dtype, *x_TD.shape))

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
        rows, experts = logits_TE.shape
        chosen = expert_Tk.shape[1]
        if chosen > experts:
            raise NotSupported(
                f"asked for {chosen} experts a row, found {experts}",
                hint="check the model's configuration",
            )
        if chosen > _MOST_CHOSEN:
            raise NotSupported(
                f"asked for {chosen} experts a row, found kernels for {_MOST_CHOSEN}",
                hint="choose core.reference",
            )
        if not rows:
            return
        choose = self._routing(experts, chosen, scaling)
        choose(
            logits_TE=check(logits_TE, _FP32, rows, experts),
            bias_E=check(bias_E, _FP32, experts),
            image_bias_E=check(image_bias_E, _FP32, experts),
            image_T=check(image_T, _BOOL, rows),
            expert_Tk=check(expert_Tk, _INT64, rows, chosen),
            weight_Tk=check(weight_Tk, _FP32, rows, chosen),
        )

    def swiglu(
        self,
        plan: Plan,
        gate_up_R2I: torch.Tensor,
        route_R: torch.Tensor | None,
        limit: float,
        out_RI: torch.Tensor,
    ) -> None:
        """Activate."""
        if not gate_up_R2I.numel():
            return
        gate_up_R2I, row_stride = strided_rows(gate_up_R2I)
        rows, width = gate_up_R2I.shape[0], gate_up_R2I.shape[1] // 2
        has_route = route_R is not None
        routes = {} if route_R is None else {"route_R": check(route_R, _FP32, rows)}
        activate = self._activation(
            width, gate_up_R2I.dtype, out_RI.dtype, limit, has_route, row_stride
        )
        activate(
            gate_up_R2I=gate_up_R2I,
            **routes,
            out_RI=check(out_RI, out_RI.dtype, rows, width),
        )


def build(options: None, context: BuildContext) -> TileLangTransform:
    """Build the component; it has no options.

    Args:
        options: None.
        context: says where compiled kernels are kept.
    """
    return TileLangTransform(kernels_for(context))
