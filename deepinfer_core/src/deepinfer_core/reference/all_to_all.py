"""How do rows reach their experts when all experts live in this process?

Nothing is sent: rows are copied into the order of their experts, and summed back. On any device,
and without a wait: no shape depends on who chose what.

Shapes: T rows, k experts a row, R dispatched rows, E experts, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.all_to_all import AllToAll, Dispatched, ExchangeSpec
from deepinfer_core.interfaces.component import Plan, Properties
from deepinfer_core.plugin import BuildContext
from deepinfer_core.reference.promises import PROMISES

__all__ = ["ExchangePlan", "LocalExchange", "build"]


@dataclass(frozen=True, kw_only=True)
class ExchangePlan(Plan):
    """The numbers, checked."""

    spec: ExchangeSpec


class LocalExchange(AllToAll):
    """The exchange of a single rank. A dispatch's handle is the row of each (row, choice)."""

    @property
    def properties(self) -> Properties:
        """The promises of this component: nothing here waits or depends on the data."""
        return replace(PROMISES, graph_safe="always")

    def plan(self, spec: ExchangeSpec, max_rows: int) -> Plan:
        """Check the numbers.

        Raises:
            NotSupported: a number below 1.
        """
        if min(spec.experts, spec.experts_per_row, spec.row_alignment) < 1:
            raise NotSupported(
                f"asked for {spec.experts} experts, {spec.experts_per_row} a row, aligned to"
                f" {spec.row_alignment} rows, found that each must be at least 1",
                hint="check the model's configuration",
            )
        return ExchangePlan(max_rows=max_rows, spec=spec)

    def dispatch(
        self, plan: Plan, x_TD: torch.Tensor, expert_Tk: torch.Tensor, weight_Tk: torch.Tensor
    ) -> Dispatched:
        """Copy rows into the order of their experts, and of their index within an expert."""
        assert isinstance(plan, ExchangePlan)
        experts, alignment = plan.spec.experts, plan.spec.row_alignment
        choices = expert_Tk.shape[1]
        expert_X = expert_Tk.flatten() % (experts + 1)  # those without an expert come last
        sorted_X, order_X = expert_X.sort(stable=True)
        place_X = torch.arange(expert_X.shape[0], device=expert_X.device)
        number_E = torch.arange(experts, device=expert_X.device)
        end_E = torch.searchsorted(sorted_X, number_E, right=True)
        x_RD, weight_R = x_TD[order_X // choices], weight_Tk.flatten()[order_X]
        if alignment > 1:
            place_X, end_E = _aligned(place_X, end_E, sorted_X, alignment)
            # Each expert adds at most alignment - 1 rows of padding.
            capacity = len(place_X) + min(experts, len(place_X)) * (alignment - 1)
            x_RD = x_RD.new_zeros(capacity, x_RD.shape[1]).index_copy_(0, place_X, x_RD)
            weight_R = weight_R.new_zeros(capacity).index_copy_(0, place_X, weight_R)
        row_X = torch.empty_like(order_X).scatter_(0, order_X, place_X)
        row_X.masked_fill_(expert_X == experts, -1)
        return Dispatched(
            x_RD=x_RD, weight_R=weight_R, ends_E=end_E, handle=row_X.view_as(expert_Tk)
        )

    def combine(
        self, plan: Plan, y_RD: torch.Tensor, dispatched: Dispatched, out_TD: torch.Tensor
    ) -> None:
        """Add choice after choice, which fixes the order of the sum."""
        row_Tk: torch.Tensor = dispatched.handle
        out_TD.zero_()
        if y_RD.shape[0] == 0:
            return
        added_TkD = y_RD[row_Tk.clamp(min=0)].to(out_TD.dtype)
        added_TkD.masked_fill_((row_Tk < 0)[:, :, None], 0)
        for added_TD in added_TkD.unbind(1):
            out_TD += added_TD


def build(options: None, context: BuildContext) -> LocalExchange:
    """Build the component; it has no options."""
    return LocalExchange()


def _aligned(
    place_X: torch.Tensor, end_E: torch.Tensor, sorted_X: torch.Tensor, alignment: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Places of sorted choices, and ends of experts, if each begins at an aligned row."""
    count_E = end_E.diff(prepend=end_E.new_zeros(1))
    aligned_E = -(-count_E // alignment) * alignment
    aligned_end_E = aligned_E.cumsum(0)
    shift_E = (aligned_end_E - aligned_E) - (end_E - count_E)
    # Those without an expert follow behind the last one.
    shift_E = torch.cat((shift_E, aligned_end_E[-1:] - end_E[-1:]))
    return place_X + shift_E[sorted_X], aligned_end_E
