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
        rows, choices = expert_Tk.shape
        row_Tk, end_E = _places(expert_Tk, experts, alignment)
        # Each expert adds at most alignment - 1 rows of padding.
        capacity = rows * choices + min(experts, rows * choices) * (alignment - 1)
        # Choices without an expert go to one more row, which is cut off.
        target_X = torch.where(row_Tk < 0, capacity, row_Tk).flatten()
        x_RD = x_TD.new_zeros(capacity + 1, x_TD.shape[1])
        x_RD[target_X] = x_TD.repeat_interleave(choices, 0)
        weight_R = weight_Tk.new_zeros(capacity + 1)
        weight_R[target_X] = weight_Tk.flatten()
        return Dispatched(
            x_RD=x_RD[:capacity], weight_R=weight_R[:capacity], ends_E=end_E, handle=row_Tk
        )

    def combine(
        self, plan: Plan, y_RD: torch.Tensor, dispatched: Dispatched, out_TD: torch.Tensor
    ) -> None:
        """Add choice after choice, which fixes the order of the sum."""
        row_Tk: torch.Tensor = dispatched.handle
        out_TD.zero_()
        if y_RD.shape[0] == 0:
            return
        for row_T in row_Tk.unbind(1):
            added_TD = y_RD[row_T.clamp(min=0)].to(out_TD.dtype)
            out_TD += added_TD.masked_fill_((row_T < 0)[:, None], 0)


def build(options: None, context: BuildContext) -> LocalExchange:
    """Build the component; it has no options."""
    return LocalExchange()


def _places(
    expert_Tk: torch.Tensor, experts: int, alignment: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Where each choice goes, -1 for none, and the running ends of the experts."""
    expert_X = expert_Tk.flatten()
    expert_X = torch.where(expert_X < 0, experts, expert_X)
    # Counted without asking the device how many there are.
    count_E = expert_X.new_zeros(experts + 1).scatter_add_(0, expert_X, torch.ones_like(expert_X))
    aligned_E = -(-count_E // alignment) * alignment
    end_E = aligned_E.cumsum(0)
    sorted_X, order_X = expert_X.sort(stable=True)
    shift_E = (end_E - aligned_E) - (count_E.cumsum(0) - count_E)
    row_X = torch.empty_like(expert_X)
    place_X = torch.arange(expert_X.shape[0], device=expert_X.device)
    row_X[order_X] = place_X + shift_E[sorted_X]
    row_X.masked_fill_(expert_X == experts, -1)
    return row_X.view_as(expert_Tk), end_E[:experts]
