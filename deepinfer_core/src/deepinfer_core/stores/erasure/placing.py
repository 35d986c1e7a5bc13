"""Which child has which fragment of a block, and who is asked first?

Pieces go round the children from a place that the key gives, so each child has as much data and as
much parity as every other. Readers take fragments by the number that they bear, so children may be
named in another order later.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from deepinfer_core.stores.erasure.child import Child

__all__ = ["Placing"]


class Placing:
    """Who has what.

    Args:
        children: all of them.
        data: pieces of data, k.
    """

    def __init__(self, children: Sequence[Child], data: int) -> None:
        self._children, self._data = children, data
        self._count = len(children)
        numbers = range(self._count)
        self._pieces = [
            tuple((child - first) % self._count for child in numbers) for first in numbers
        ]
        self._order = cache(self._ordered)

    def pieces(self, key: bytes) -> Sequence[int]:
        """Number of the piece that each child has."""
        return self._pieces[self._first(key)]

    def child(self, key: bytes, piece: int) -> int:
        """The child that has a piece."""
        return (piece + self._first(key)) % self._count

    def orders(self, keys: Sequence[bytes]) -> list[Sequence[int]]:
        """For each block the children as they are asked: data, then parity, those down last."""
        parity = self._count - self._data
        orders = [self._order(self._first(key), key[4] % parity) for key in keys]
        down = {number for number, child in enumerate(self._children) if child.is_down}
        if down:
            orders = [tuple(sorted(order, key=down.__contains__)) for order in orders]
        return list(orders)

    def _ordered(self, first: int, turn: int) -> tuple[int, ...]:
        parity = self._count - self._data
        pieces = [*range(self._data)]
        pieces += [self._data + (turn + number) % parity for number in range(parity)]
        return tuple((piece + first) % self._count for piece in pieces)

    def _first(self, key: bytes) -> int:
        return int.from_bytes(key[:4], "little") % self._count
