"""How does the model call products without carrying plans and buffers around?

Components write into buffers of their caller and run by plans made beforehand. What is here owns
plans, makes one when a step has a new size, and hands out fresh outputs. It computes nothing.

Shapes: T rows, K input width, N output width.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import torch

from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.gemm import DenseGemm, DenseSpec
from deepinfer_core.numeric import QuantTensor

__all__ = ["Linear", "Planned", "torch_dtype"]

AnyPlan = TypeVar("AnyPlan", bound=Plan)


def torch_dtype(name: str) -> torch.dtype:
    """Look up a dtype by the name that interfaces use for it."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


class Planned(Generic[AnyPlan]):
    """The plans of one operator, one for each power of two of rows.

    Components choose tiles by the most rows of a plan, so a decode step must not run by the plan of
    a long prompt.

    Args:
        make: makes a plan for at most so many rows.
    """

    def __init__(self, make: Callable[[int], AnyPlan]) -> None:
        self._make = make
        self._plans: dict[int, AnyPlan] = {}

    def __call__(self, rows: int) -> AnyPlan:
        """Return the smallest plan for ``rows`` rows."""
        size = 1 << max(rows - 1, 0).bit_length()
        plan = self._plans.get(size)
        if plan is None:
            plan = self._plans[size] = self._make(size)
        return plan


class Linear:
    """A product with one weight.

    Args:
        gemm: runs it.
        weight: [N, K], or [groups * N, K] with groups stacked along the rows.
        activation_format: what the input is rounded to first.
        out_dtype: name of the dtype of results.
        groups: independent products of equal shape.

    Attributes:
        spec: what the product looks like.
        weight_format: number format of the weight.
        plan: gives the plan for so many rows.
    """

    def __init__(
        self,
        gemm: DenseGemm,
        weight: QuantTensor,
        *,
        activation_format: str,
        out_dtype: str,
        groups: int = 1,
    ) -> None:
        rows, in_width = weight.shape
        spec = DenseSpec(
            in_width=in_width,
            out_width=rows // groups,
            groups=groups,
            activation_format=activation_format,
            out_dtype=out_dtype,
        )
        self._gemm = gemm
        self._weight = gemm.prepare(weight)
        self.spec = spec
        self.weight_format = weight.format
        self.plan = Planned(lambda max_rows: gemm.plan(spec, max_rows))
        self._out_width = rows
        self._out_dtype = torch_dtype(out_dtype)

    def __call__(self, x_TK: torch.Tensor) -> torch.Tensor:
        """Return ``weight @ x`` of every row, [T, N] or [T, groups * N]."""
        rows = x_TK.shape[0]
        out_TN = torch.empty((rows, self._out_width), dtype=self._out_dtype, device=x_TK.device)
        self._gemm.run(self.plan(rows), x_TK, self._weight, out_TN)
        return out_TN
