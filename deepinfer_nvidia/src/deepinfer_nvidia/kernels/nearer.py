"""How do weights come nearer while the kernel before still runs?

A kernel that starts early may not touch what others write until it has waited. Weights are
constant: it asks for them at once, so that they lie in the L2 when it goes on.
"""

from typing import Any

import tilelang.language as T

__all__ = ["BRING_NEARER", "bring_nearer", "bytes_of_line"]

BRING_NEARER = """
__device__ __forceinline__ void deepinfer_bring_nearer(const void *from, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
"""
"""CUDA text that a kernel imports to call ``bring_nearer``."""

_MOST_BYTES = 2048
_UNIT_BYTES = 16
"""Addresses and lengths are multiples of this."""


def bytes_of_line(inputs: int, line: int) -> int:
    """Of the first ``inputs`` bf16 numbers, how many bytes are asked for; 0: none can be.

    Args:
        inputs: that one thread may ask for.
        line: from one line of the matrix to the next, in numbers.
    """
    if line * 2 % _UNIT_BYTES:
        return 0
    return min(inputs * 2, _MOST_BYTES) // _UNIT_BYTES * _UNIT_BYTES


def bring_nearer(first: Any, size: int) -> Any:
    """A statement of a thread: ask for ``size`` bytes of a constant buffer from an element on."""
    return T.call_extern("handle", "deepinfer_bring_nearer", T.address_of(first), size)
