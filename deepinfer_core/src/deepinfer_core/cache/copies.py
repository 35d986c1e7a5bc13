"""Which held blocks have the bytes of a cached one, and which of them takes over its key?

Of several blocks with one key the prefix cache hands out one. The others are *copies*: no sequence
finds them, and each is forgotten when nobody holds it. The copy that was published first is the
next one to be handed out.
"""

from __future__ import annotations

__all__ = ["BlockCopies"]


class BlockCopies:
    """Copies by the key that they share with the block that is handed out."""

    def __init__(self) -> None:
        # A key without copies has no entry; the inner dict is an ordered set.
        self._of: dict[bytes, dict[int, None]] = {}

    def __contains__(self, key: bytes) -> bool:
        """Is there a copy with this key?"""
        return key in self._of

    def add(self, key: bytes, block_id: int) -> None:
        """Note a copy, behind those of its key that are known."""
        self._of.setdefault(key, {})[block_id] = None

    def remove(self, key: bytes, block_id: int) -> None:
        """Forget a copy that was added under this key."""
        copies = self._of[key]
        del copies[block_id]
        if not copies:
            del self._of[key]

    def take_first(self, key: bytes) -> int | None:
        """Forget the copy of a key that was added first, and name it; None if there is none."""
        block_id = next(iter(self._of.get(key, ())), None)
        if block_id is not None:
            self.remove(key, block_id)
        return block_id

    def keys(self) -> dict[int, bytes]:
        """The key of every copy."""
        return {block_id: key for key, copies in self._of.items() for block_id in copies}

    def clear(self) -> None:
        """Forget all copies."""
        self._of.clear()
