"""How do rows reach their experts and come back?

Shapes: T rows of this rank, k experts per row, R dispatched rows, E local experts, D width.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepinfer_core.interfaces.component import Component, Plan

if TYPE_CHECKING:
    import torch

__all__ = ["AllToAll", "Dispatched", "ExchangeSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeSpec:
    """What an exchange looks like.

    Attributes:
        experts: physical experts over all ranks.
        experts_per_row: k.
        width: D.
        row_alignment: each expert's first row is a multiple of this.
        compute: dtype name of the rows.
    """

    experts: int
    experts_per_row: int
    width: int
    row_alignment: int = 1
    compute: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """Rows as the local experts receive them.

    Attributes:
        x_RD: rows sorted by local expert; R depends on shapes only.
        weight_R: fp32 routing weight of each row; 0 for padding.
        ends_E: int64 running ends of the local experts' rows.
        handle: what ``combine`` needs; opaque.
    """

    x_RD: torch.Tensor
    weight_R: torch.Tensor
    ends_E: torch.Tensor
    handle: Any


class AllToAll(Component):
    """Expert dispatch and combine."""

    @abstractmethod
    def plan(self, spec: ExchangeSpec, max_rows: int) -> Plan:
        """Prepare buffers for at most ``max_rows`` rows a rank."""

    @abstractmethod
    def dispatch(
        self, plan: Plan, x_TD: torch.Tensor, expert_Tk: torch.Tensor, weight_Tk: torch.Tensor
    ) -> Dispatched:
        """Send each row to its experts; expert -1 with weight 0 sends nothing."""

    @abstractmethod
    def combine(
        self, plan: Plan, y_RD: torch.Tensor, dispatched: Dispatched, out_TD: torch.Tensor
    ) -> None:
        """Sum each row's results in the order of its expert list, into the accumulation dtype.

        Rows already carry their routing weight (it is applied before the second product).
        """
