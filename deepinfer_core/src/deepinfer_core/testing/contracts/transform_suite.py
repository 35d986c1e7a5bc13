"""What do the suites of row-wise operators share?"""

from __future__ import annotations

from typing import ClassVar

import torch

from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.transform import Transform, TransformSpec
from deepinfer_core.testing.contracts.suite import ContractSuite, accumulation
from deepinfer_core.testing.tolerance import roundoff

__all__ = ["TransformSuite", "rounding_bound"]


class TransformSuite(ContractSuite):
    """Widths and plans.

    Attributes:
        width: D.
        streams: S.
    """

    width: ClassVar[int] = 64
    streams: ClassVar[int] = 4

    def plan(self, component: Transform, compute: str) -> Plan:
        """A plan for up to 128 rows."""
        spec = TransformSpec(hidden_width=self.width, streams=self.streams, compute=compute)
        return component.plan(spec, 128)


def rounding_bound(
    want: torch.Tensor, dtype: torch.dtype, operations: float, size: torch.Tensor | float = 0.0
) -> torch.Tensor:
    """Error of a formula whose longest chain has so many roundings, and of the final rounding.

    Args:
        want: the exact result.
        dtype: of the result; the formula runs in its accumulation dtype.
        operations: roundings, each relative to ``size``.
        size: largest intermediate value where terms cancel; the result itself counts anyway.
    """
    size = torch.as_tensor(size, dtype=torch.float64).maximum(want.abs())
    error = operations * roundoff(accumulation(dtype)) * size
    # The smallest normal number of fp32 covers results that underflow.
    return error + roundoff(dtype) * (want.abs() + error) + 2.0**-126
