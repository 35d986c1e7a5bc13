"""Which child has which fragment of a block, and who is asked first?

Pieces go round the children from a place that the key gives, so each child has as much data and as
much parity as every other. Readers take fragments by the number that they bear, so children may be
named in another order later.
"""

from __future__ import annotations

from collections.abc import Sequence

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

    def piece(self, key: bytes, child: int) -> int:
        """Number of the piece that a child has."""
        return (child - self._first(key)) % self._count

    def child(self, key: bytes, piece: int) -> int:
        """The child that has a piece."""
        return (piece + self._first(key)) % self._count

    def order(self, key: bytes) -> list[int]:
        """Children in the order in which they are asked: data, then parity, those down last."""
        parity = self._count - self._data
        turn = key[4] % parity
        pieces = [*range(self._data)]
        pieces += [self._data + (turn + number) % parity for number in range(parity)]
        order = [self.child(key, piece) for piece in pieces]
        return sorted(order, key=lambda child: self._children[child].is_down)

    def _first(self, key: bytes) -> int:
        return int.from_bytes(key[:4], "little") % self._count
