"""How many rows has each Engram sub-table? Torch-free, since a configuration is checked by it.

Source: the n-gram hash of DeepSeek-V4.1-Flash's Engram.
"""

import math
from collections.abc import Iterator
from itertools import chain

__all__ = ["hash_primes"]


def hash_primes(*, layers: int, orders: int, heads: int, smallest: int) -> list[list[int]]:
    """Sub-table sizes of each layer, order major, then head.

    Every (layer, order) starts over at ``smallest`` and takes the next primes that nobody took.
    """
    unused = _primes_from(smallest)
    return [
        list(chain.from_iterable([next(unused) for _ in range(heads)] for _ in range(orders)))
        for _ in range(layers)
    ]


def _primes_from(smallest: int) -> Iterator[int]:
    candidate = max(smallest, 2)
    while True:
        if _is_prime(candidate):
            yield candidate
        candidate += 1


def _is_prime(number: int) -> bool:
    if number % 2 == 0:
        return number == 2
    return all(number % divisor for divisor in range(3, math.isqrt(number) + 1, 2))
