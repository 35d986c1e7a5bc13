"""What is the activation of an expert? An expression that several kernels use."""

from typing import Any

import tilelang.language as T

__all__ = ["activated"]


def activated(gate: Any, up: Any, limit: Any) -> Any:
    """``silu(min(gate, limit)) * clamp(up, +-limit)`` of fp32 numbers.

    With comparisons, since the device's minimum loses a NaN.
    """
    gate = T.if_then_else(gate > limit, limit, gate)
    up = T.if_then_else(up > limit, limit, T.if_then_else(up < -limit, -limit, up))
    return gate / (T.exp(-gate) + T.float32(1)) * up
