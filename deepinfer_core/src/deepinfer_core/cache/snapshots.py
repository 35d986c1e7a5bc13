"""Which state slots hold a sequence's state at the end of a cached block, and which may go?

A *snapshot* is a copy of a whole state slot, taken when a sequence has exactly the tokens up to the
end of a block. Its slot is *reserved* while the copy is made, *published* under the key of that
block, and then free again. The one that was used longest ago goes first.

A snapshot may be evicted, and its slot reused, although a copy from it was just planned: the device
does what is queued on a stream in order, and the copy is queued before anything that can overwrite
the slot.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain

from deepinfer_core.cache.pool import PagePool
from deepinfer_core.errors import EngineError

__all__ = ["SnapshotShelf"]


class SnapshotShelf:
    """Snapshots by the key of the block that they follow.

    Args:
        slots: the pool that running sequences use as well.
        max_snapshots: most slots held here, reserved ones included. With as many slots in the pool
            beside those of the running sequences, neither waits for the other.

    Attributes:
        evicted: snapshots that made room for others.
    """

    def __init__(self, slots: PagePool, max_snapshots: int) -> None:
        self.evicted = 0
        self._slots = slots
        self._max = max_snapshots
        # Published, the one used longest ago first.
        self._slot_of: OrderedDict[bytes, int] = OrderedDict()
        self._reserved: set[int] = set()

    def __contains__(self, key: bytes) -> bool:
        """Is there a snapshot behind the block of this key?"""
        return key in self._slot_of

    def __len__(self) -> int:
        """Slots held, reserved ones included."""
        return len(self._slot_of) + len(self._reserved)

    def __iter__(self) -> Iterator[int]:
        """All slots held, reserved ones included."""
        return chain(self._slot_of.values(), self._reserved)

    @property
    def reserved(self) -> frozenset[int]:
        """Slots that are reserved and not published yet."""
        return frozenset(self._reserved)

    def reserve(self) -> int | None:
        """Take a slot for a new snapshot; None if all are reserved."""
        if len(self) >= self._max or not self._slots.free_count:
            if not self._slot_of:
                return None
            self.forget(next(iter(self._slot_of)))
            self.evicted += 1
        [slot] = self._slots.take(1)
        self._reserved.add(slot)
        return slot

    def publish(self, key: bytes, slot: int) -> None:
        """Let others restore a reserved slot; it is given back if the key has a snapshot.

        Raises:
            EngineError: the slot is not reserved.
        """
        if key in self._slot_of:
            self.drop(slot)
            self.find(key)
            return
        self._take_off(slot)
        self._slot_of[key] = slot

    def drop(self, slot: int) -> None:
        """Give a reserved slot back.

        Raises:
            EngineError: the slot is not reserved.
        """
        self._take_off(slot)
        self._slots.release([slot])

    def find(self, key: bytes) -> int | None:
        """Slot of a snapshot, which counts as used now; None if there is none."""
        slot = self._slot_of.get(key)
        if slot is not None:
            self._slot_of.move_to_end(key)
        return slot

    def forget(self, key: bytes) -> None:
        """Free the slot of a key's snapshot; nothing happens if there is none."""
        slot = self._slot_of.pop(key, None)
        if slot is not None:
            self._slots.release([slot])

    def clear(self) -> None:
        """Forget all published snapshots; reserved slots stay reserved."""
        self._slots.release(list(self._slot_of.values()))
        self._slot_of.clear()

    def check_integrity(self) -> None:
        """Compare the books with each other.

        Raises:
            EngineError: a slot is held twice, or more are held than may be.
        """
        if not len(set(self)) == len(self) <= self._max:
            raise EngineError("the books of the state snapshots contradict each other")

    def _take_off(self, slot: int) -> None:
        """The slot is reserved no longer."""
        if slot not in self._reserved:
            raise EngineError(f"state slot {slot} is not reserved for a snapshot")
        self._reserved.remove(slot)
