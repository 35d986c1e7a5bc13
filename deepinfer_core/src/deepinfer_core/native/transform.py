"""How are the row-wise operators computed by the compiled kernels?

Rows of bf16 or fp32 are widened element by element, sums are fp32, and each result is rounded once.
``kernels/{norms,streams,mixture,engram}.c`` say in which order sums are taken. Rotation, rounding,
collapse, expansion and hashes give the bits of ``core.reference``.
"""

from __future__ import annotations

import torch

from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.interfaces.recording import Recorder
from deepinfer_core.interfaces.transform import TransformSpec
from deepinfer_core.native.addresses import address, row_major
from deepinfer_core.native.engram import CpuEngram
from deepinfer_core.native.library import bind, open_library
from deepinfer_core.native.pages import format_code
from deepinfer_core.native.promises import PROMISES
from deepinfer_core.native.recording import kernel_recorder
from deepinfer_core.native.streams import STREAMS, CpuStreams
from deepinfer_core.native.tensors import type_code
from deepinfer_core.numeric import number_format
from deepinfer_core.plugin import BuildContext

__all__ = ["CpuTransform", "build"]

_FP32, _INT64, _BOOL = torch.float32, torch.int64, torch.bool


class CpuTransform(CpuStreams, CpuEngram):
    """All row-wise operators in fp32.

    Args:
        cache_dir: folder of compiled kernels.

    Raises:
        DeviceError: the kernels cannot be compiled or loaded.
    """

    def __init__(self, cache_dir: str) -> None:
        library = open_library(cache_dir)
        CpuStreams.__init__(self, library)
        CpuEngram.__init__(self, library)
        self._recorder = kernel_recorder(cache_dir)
        self._rms_norm = bind(library, "di_rms_norm", "plllplfpl")
        self._add = bind(library, "di_add", "pplpl")
        self._rope = bind(library, "di_rope", "pllllpplfp")
        self._fake_quantise = bind(library, "di_fake_quantise", "pllllp")
        self._gate_topk = bind(library, "di_gate_topk", "pllpppflpp")
        self._swiglu = bind(library, "di_swiglu", "plllpfpl")

    @property
    def properties(self) -> Properties:
        """The promises of this component."""
        return PROMISES

    @property
    def recorder(self) -> Recorder:
        """All compiled kernels share one."""
        return self._recorder

    def plan(self, spec: TransformSpec, max_rows: int) -> Plan:
        """Check what the kernels were written for.

        Raises:
            NotSupported: another number of streams than four, or fp64.
        """
        if spec.streams != STREAMS:
            raise NotSupported(
                f"asked for {spec.streams} residual streams, found kernels for {STREAMS}",
                hint="choose core.reference, which takes any number",
            )
        type_code(number_format(spec.compute).storage)
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
        x_TD = row_major(x_TD)
        shape, width = x_TD.shape, x_TD.shape[-1]
        self._rms_norm(
            x_TD.data_ptr(),
            type_code(x_TD.dtype),
            x_TD.numel() // max(width, 1),
            width,
            address(weight_D, weight_D.dtype, (width,)),
            type_code(weight_D.dtype),
            eps,
            address(out_TD, out_TD.dtype, shape),
            type_code(out_TD.dtype),
        )

    def add(self, plan: Plan, x_TD: torch.Tensor, y_TD: torch.Tensor, out_TD: torch.Tensor) -> None:
        """Add and round."""
        self._add(
            address(x_TD, _FP32, out_TD.shape),
            address(y_TD, _FP32, out_TD.shape),
            out_TD.numel(),
            address(out_TD, out_TD.dtype, out_TD.shape),
            type_code(out_TD.dtype),
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
        """Rotate pairs; both members are read before either is written."""
        rows, heads, width = x_THD.shape
        pairs = cosine_TP.shape[-1]
        self._rope(
            address(x_THD, x_THD.dtype, x_THD.shape),
            type_code(x_THD.dtype),
            rows,
            heads,
            width,
            address(cosine_TP, _FP32, (rows, pairs)),
            address(sine_TP, _FP32, (rows, pairs)),
            pairs,
            -1.0 if inverse else 1.0,
            address(out_THD, x_THD.dtype, x_THD.shape),
        )

    def fake_quantise(
        self, plan: Plan, x_TD: torch.Tensor, number_format: str, out_TD: torch.Tensor
    ) -> None:
        """Round as the number formats say."""
        form, code = format_code(number_format)
        if form.is_plain:
            out_TD.copy_(x_TD)
            return
        x_TD = row_major(x_TD)
        width = x_TD.shape[-1]
        form.check_width(width)
        if out_TD.dtype is not x_TD.dtype:
            rounded_TD = torch.empty_like(x_TD)
            self.fake_quantise(plan, x_TD, number_format, rounded_TD)
            out_TD.copy_(rounded_TD)
            return
        self._fake_quantise(
            x_TD.data_ptr(),
            type_code(x_TD.dtype),
            x_TD.numel() // max(width, 1),
            width,
            code,
            address(out_TD, x_TD.dtype, x_TD.shape),
        )

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
        self._gate_topk(
            address(logits_TE, _FP32, (rows, experts)),
            rows,
            experts,
            address(bias_E, _FP32, (experts,)),
            address(image_bias_E, _FP32, (experts,)),
            address(image_T, _BOOL, (rows,)),
            scaling,
            chosen,
            address(expert_Tk, _INT64, (rows, chosen)),
            address(weight_Tk, _FP32, (rows, chosen)),
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
        gate_up_R2I = row_major(gate_up_R2I)
        rows, width = gate_up_R2I.shape[0], gate_up_R2I.shape[1] // 2
        self._swiglu(
            address(gate_up_R2I, gate_up_R2I.dtype, (rows, 2 * width)),
            type_code(gate_up_R2I.dtype),
            rows,
            width,
            None if route_R is None else address(route_R, _FP32, (rows,)),
            limit,
            address(out_RI, out_RI.dtype, (rows, width)),
            type_code(out_RI.dtype),
        )


def build(options: None, context: BuildContext) -> CpuTransform:
    """Build the component; it has no options.

    Args:
        options: None.
        context: ``cache_dir`` has the compiled kernels.
    """
    return CpuTransform(context.cache_dir)
