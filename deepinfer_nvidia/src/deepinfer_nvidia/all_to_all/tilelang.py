"""How do rows reach their experts, all of them on one GPU, by kernels in TileLang?

With the bits of ``core.reference``: rows are copied, and summed back in the order of a row's
experts. A kernel each for the order, for the way there and for the way back.

Shapes: T rows, k experts a row, R = T * k dispatched rows, E experts, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.all_to_all import AllToAll, Dispatched, ExchangeSpec
from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.interfaces.operators.all_to_all import ExchangeOrderSpec, ExchangeRowsSpec
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.plugin import BuildContext

from deepinfer_nvidia.kernels import all_to_all_gather, all_to_all_order, all_to_all_sum
from deepinfer_nvidia.kernels.arguments import check, dense, dtype_name, shaped
from deepinfer_nvidia.kernels.launch import Wanted, kernels_for, launches

__all__ = ["TileLangExchange", "build"]

_FP32, _INT64 = torch.float32, torch.int64

_FEW_CHOICES = 2048
"""Up to so many, a thread of a small block has a short piece of them."""


@dataclass(frozen=True, kw_only=True)
class _ExchangePlan(Plan):
    spec: ExchangeSpec


class TileLangExchange(AllToAll):
    """The exchange of a single GPU. A dispatch's handle is the place of each (row, choice).

    Args:
        kernels: runs them.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._order = launches(kernels, _order_kernel)
        self._gather = launches(kernels, _gather_kernel)
        self._sum = launches(kernels, _sum_kernel)

    @property
    def properties(self) -> Properties:
        """The promises of this component."""
        return Properties(batch_invariant="always", deterministic="always", graph_safe="always")

    @property
    def kernels_built(self) -> int | None:
        """Kernels that were compiled or loaded so far."""
        return self._kernels.built

    def plan(self, spec: ExchangeSpec, max_rows: int) -> Plan:
        """Check the numbers.

        Raises:
            NotSupported: a number below 1, or experts that begin at aligned rows.
        """
        if min(spec.experts, spec.experts_per_row) < 1 or spec.row_alignment != 1:
            raise NotSupported(
                f"asked for {spec.experts} experts, {spec.experts_per_row} a row, aligned to"
                f" {spec.row_alignment} rows, found kernels for at least 1 of both without"
                " alignment",
                hint="check the model's configuration, or choose core.local",
            )
        return _ExchangePlan(max_rows=max_rows, spec=spec)

    def dispatch(
        self, plan: Plan, x_TD: torch.Tensor, expert_Tk: torch.Tensor, weight_Tk: torch.Tensor
    ) -> Dispatched:
        """Copy rows into the order of their experts, and of their index within an expert."""
        assert isinstance(plan, _ExchangePlan)
        experts, (rows, choices), width = plan.spec.experts, expert_Tk.shape, x_TD.shape[1]
        places = rows * choices
        row_Tk = torch.empty_like(expert_Tk, memory_format=torch.contiguous_format)
        choice_R = row_Tk.new_empty(places)
        x_RD, weight_R = x_TD.new_empty(places, width), weight_Tk.new_empty(places)
        if not places:
            ends_E = row_Tk.new_zeros(experts)
            return Dispatched(x_RD=x_RD, weight_R=weight_R, ends_E=ends_E, handle=row_Tk)
        ends_E = row_Tk.new_empty(experts)
        order = self._order(experts, choices, places > _FEW_CHOICES)
        order(
            expert_Tk=shaped(expert_Tk.contiguous(), _INT64, rows, choices),
            row_Tk=row_Tk,
            choice_R=choice_R,
            ends_E=ends_E,
        )
        gather = self._gather(width, choices, x_TD.dtype)
        gather(
            x_TD=check(dense(x_TD), x_TD.dtype, rows, width),
            weight_Tk=shaped(weight_Tk.contiguous(), _FP32, rows, choices),
            choice_R=choice_R,
            x_RD=x_RD,
            weight_R=weight_R,
        )
        return Dispatched(x_RD=x_RD, weight_R=weight_R, ends_E=ends_E, handle=row_Tk)

    def combine(
        self, plan: Plan, y_RD: torch.Tensor, dispatched: Dispatched, out_TD: torch.Tensor
    ) -> None:
        """Add choice after choice, which fixes the order of the sum."""
        row_Tk: torch.Tensor = dispatched.handle
        rows, choices = row_Tk.shape
        if not rows:
            return
        width = y_RD.shape[1]
        add = self._sum(width, choices, y_RD.dtype)
        add(
            y_RD=check(dense(y_RD), y_RD.dtype, rows * choices, width),
            row_Tk=row_Tk,
            out_TD=check(out_TD, _FP32, rows, width),
        )


def build(options: None, context: BuildContext) -> TileLangExchange:
    """Build the component; it has no options.

    Args:
        options: None.
        context: says where compiled kernels are kept, or that this is a rehearsal.
    """
    return TileLangExchange(kernels_for(context))


def _order_kernel(experts: int, choices: int, has_many: bool) -> Wanted:
    spec = ExchangeOrderSpec(experts=experts, choices=choices)
    tuning = all_to_all_order.default_tuning(spec)
    if has_many:
        (tuning,) = all_to_all_order.launch_tunings(spec)
    return all_to_all_order.build, spec, tuning


def _gather_kernel(width: int, choices: int, dtype: torch.dtype) -> Wanted:
    spec = ExchangeRowsSpec(width=width, choices=choices, dtype=dtype_name(dtype))
    return all_to_all_gather.build, spec, all_to_all_gather.default_tuning(spec)


def _sum_kernel(width: int, choices: int, dtype: torch.dtype) -> Wanted:
    spec = ExchangeRowsSpec(width=width, choices=choices, dtype=dtype_name(dtype))
    return all_to_all_sum.build, spec, all_to_all_sum.default_tuning(spec)
