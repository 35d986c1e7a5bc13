"""How do compiled kernels bring rows to experts that all live in this process?

The same rows in the same places as ``core.local``, and the same sums in every bit.

Shapes: T rows, k experts a row, R dispatched rows, E experts, D width.
"""

from __future__ import annotations

import torch

from deepinfer_core.interfaces.all_to_all import Dispatched
from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.interfaces.recording import Recorder
from deepinfer_core.native.addresses import address, row_major, slice_address
from deepinfer_core.native.library import bind, open_library
from deepinfer_core.native.promises import PROMISES
from deepinfer_core.native.recording import kernel_recorder
from deepinfer_core.plugin import BuildContext
from deepinfer_core.reference.all_to_all import ExchangePlan, LocalExchange

__all__ = ["CpuExchange", "build"]

_FP32, _INT64 = torch.float32, torch.int64


class CpuExchange(LocalExchange):
    """The exchange of a single rank, planned as by the reference.

    A dispatch's handle is the row of each (row, choice).

    Args:
        cache_dir: folder of compiled kernels.

    Raises:
        DeviceError: the kernels cannot be compiled or loaded.
    """

    def __init__(self, cache_dir: str) -> None:
        library = open_library(cache_dir)
        self._dispatch = bind(library, "di_exchange_dispatch", "pllllplplpppp")
        self._combine = bind(library, "di_exchange_combine", "plplllpl")
        self._recorder = kernel_recorder(cache_dir)

    @property
    def recorder(self) -> Recorder:
        """All compiled kernels share one."""
        return self._recorder

    @property
    def properties(self) -> Properties:
        """The promises of this component."""
        return PROMISES

    def dispatch(
        self, plan: Plan, x_TD: torch.Tensor, expert_Tk: torch.Tensor, weight_Tk: torch.Tensor
    ) -> Dispatched:
        """Copy rows into the order of their experts, and of their index within an expert."""
        assert isinstance(plan, ExchangePlan)
        experts, alignment = plan.spec.experts, plan.spec.row_alignment
        rows, choices = expert_Tk.shape
        width = x_TD.shape[1]
        x_TD, expert_Tk, weight_Tk = map(row_major, (x_TD, expert_Tk, weight_Tk))
        # Each expert adds at most alignment - 1 rows of padding.
        capacity = rows * choices + min(experts, rows * choices) * (alignment - 1)
        sent = Dispatched(
            x_RD=torch.empty((capacity, width), dtype=x_TD.dtype),
            weight_R=torch.empty(capacity, dtype=_FP32),
            ends_E=torch.empty(experts, dtype=_INT64),
            handle=torch.empty((rows, choices), dtype=_INT64),
        )
        self._dispatch(
            address(expert_Tk, _INT64, (rows, choices)),
            rows,
            choices,
            experts,
            alignment,
            address(x_TD, x_TD.dtype, (rows, width)),
            width * x_TD.itemsize,
            address(weight_Tk, _FP32, (rows, choices)),
            capacity,
            sent.x_RD.data_ptr(),
            sent.weight_R.data_ptr(),
            sent.handle.data_ptr(),
            sent.ends_E.data_ptr(),
        )
        return sent

    def combine(
        self, plan: Plan, y_RD: torch.Tensor, dispatched: Dispatched, out_TD: torch.Tensor
    ) -> None:
        """Add choice after choice, which fixes the order of the sum."""
        row_Tk: torch.Tensor = dispatched.handle
        rows, choices = row_Tk.shape
        width = out_TD.shape[1]
        y_RD = row_major(y_RD)
        self._combine(
            address(y_RD, _FP32, dispatched.x_RD.shape),
            width,
            row_Tk.data_ptr(),
            rows,
            choices,
            width,
            slice_address(out_TD, _FP32, (rows, width)),
            out_TD.stride(0),
        )


def build(options: None, context: BuildContext) -> CpuExchange:
    """Build the component; it has no options."""
    return CpuExchange(context.cache_dir)
