"""How are residual streams added up? An expression that several kernels use.

As ``reference.hyper_connections`` does: products are rounded, then added one after the other.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import tilelang.language as T

__all__ = ["weighted_sum"]


def weighted_sum(weights: Sequence[Any], values: Sequence[Any]) -> Any:
    """The sum of ``weight * value``, in order, fp32; values of any dtype."""
    products = [
        T.ieee_mul(weight, T.cast(value, "float32"))
        for weight, value in zip(weights, values, strict=True)
    ]
    return reduce(T.ieee_add, products)
