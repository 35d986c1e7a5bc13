"""How are matrix products with weights asked for?

Slots: ``dense`` (every linear that all tokens share, and the grouped output projection) and
``grouped`` (routed experts). Weights are handed over once, at load, in the form the checkpoint
holds them; what a backend makes of them is its own affair.

Shapes: T rows of a step, R rows sorted by expert, K input width, N output width, G groups, E
experts.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from deepinfer_core.interfaces.component import Component, Plan

if TYPE_CHECKING:
    import torch

    from deepinfer_core.numeric import QuantTensor

__all__ = ["DenseGemm", "DenseSpec", "GroupedGemm", "GroupedSpec", "PreparedWeight"]


class PreparedWeight(Protocol):
    """A weight in the form one backend wants; opaque to the core."""

    @property
    def memory_bytes(self) -> int:
        """Bytes that this weight occupies."""

    def dequantise(self) -> torch.Tensor:
        """The exact values, float32 [.., N, K], for tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseSpec:
    """What one dense product looks like.

    Attributes:
        in_width: K, of one group.
        out_width: N, of one group.
        groups: G independent products of the same shape; 1 for an ordinary linear.
        activation_format: format the input is rounded to first (``mxfp8``), or the compute dtype
            when it is used as it is.
        out_dtype: name of the dtype of the result, e.g. ``bfloat16``.
    """

    in_width: int
    out_width: int
    groups: int = 1
    activation_format: str
    out_dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedSpec:
    """What one expert product looks like; the fields mean what they mean in ``DenseSpec``."""

    experts: int
    in_width: int
    out_width: int
    activation_format: str
    out_dtype: str


class DenseGemm(Component):
    """Products of all rows with one weight."""

    @property
    def wants_rounded_rows(self) -> bool:
        """Whether rows had better come rounded, in bfloat16, from whoever makes them.

        True where rounding is a pass of its own. Then the model rounds where all products want it,
        and the specs name bfloat16; a component that is asked for a block format rounds all the
        same.
        """
        return False

    @abstractmethod
    def prepare(self, weight: QuantTensor) -> PreparedWeight:
        """Take over a weight [N, K] (or [G * N, K], groups stacked along the rows).

        Raises:
            NotSupported: the format or a width is not one this backend multiplies.
        """

    @abstractmethod
    def plan(self, spec: DenseSpec, max_rows: int) -> Plan:
        """Decide how to run ``spec`` for at most ``max_rows`` rows; shapes are checked here."""

    @abstractmethod
    def run(
        self, plan: Plan, x_TK: torch.Tensor, weight: PreparedWeight, out_TN: torch.Tensor
    ) -> None:
        """Multiply: ``out[t] = weight @ x[t]``, accumulated in fp32 or wider.

        Args:
            plan: from ``plan`` for this product.
            x_TK: [T, K], with groups [T, G * K] (group g owns columns g * K and following).
            weight: from ``prepare``.
            out_TN: [T, N], with groups [T, G * N]; overwritten, dtype of the spec.
        """


class GroupedGemm(Component):
    """Products of rows, sorted by expert, with the weight of their expert."""

    @property
    def wants_rounded_rows(self) -> bool:
        """As for ``DenseGemm``."""
        return False

    @abstractmethod
    def prepare_experts(self, weight: QuantTensor) -> PreparedWeight:
        """Take over the stacked weights [E, N, K] of one layer's local experts."""

    @abstractmethod
    def plan_experts(self, spec: GroupedSpec, max_rows: int) -> Plan:
        """Decide how to run ``spec`` for at most ``max_rows`` rows over all experts together."""

    @abstractmethod
    def run_experts(
        self,
        plan: Plan,
        x_RK: torch.Tensor,
        weight: PreparedWeight,
        ends_E: torch.Tensor,
        out_RN: torch.Tensor,
    ) -> None:
        """Multiply each row with its expert's weight.

        Args:
            plan: from ``plan_experts``.
            x_RK: [R, K], rows of expert e at ``ends_E[e - 1]`` up to ``ends_E[e]``.
            weight: from ``prepare_experts``.
            ends_E: int64, running ends; experts without rows repeat the previous end. Rows behind
                the last end belong to nobody and are left untouched.
            out_RN: [R, N], overwritten for the rows that belong to an expert.
        """
