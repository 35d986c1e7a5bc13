"""How does a lane turn pairs of channels? For kernels that rotate and do something else.

Products are rounded before they are added, as ``reference.transform.rope`` does: a contracted
multiply-add would give other bits.
"""

from typing import Any

import tilelang.language as T

__all__ = ["turned"]


def turned(even: Any, odd: Any, cosine: Any, sine: Any) -> tuple[Any, Any]:
    """Both members of a pair, fp32, turned by an angle."""
    return (
        T.ieee_sub(T.ieee_mul(even, cosine), T.ieee_mul(odd, sine)),
        T.ieee_add(T.ieee_mul(even, sine), T.ieee_mul(odd, cosine)),
    )
