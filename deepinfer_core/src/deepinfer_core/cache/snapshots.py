"""Which state slots hold a sequence's state at the end of a cached block, and which may go?

A *snapshot* is a copy of a whole state slot, taken when a sequence has exactly the tokens up to the
end of a block. Its slot passes through three stages: *reserved* while the copy is made, *published*
under the key of that block, and free again. A published snapshot that a copy is still to be made
from is *pinned*, and stays. Of the others the one that was used longest ago goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

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
        self._slot_of: dict[bytes, int] = {}
        # Of every slot held: its key, or None while it is reserved or after it was forgotten.
        self._key_of: dict[int, bytes | None] = {}
        self._pins: dict[int, int] = {}
        # Published and without a pin, the one used longest ago first.
        self._loose: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        """Is there a snapshot behind the block of this key?"""
        return key in self._slot_of

    def __len__(self) -> int:
        """Slots held, reserved ones included."""
        return len(self._key_of)

    def __iter__(self) -> Iterator[int]:
        """All slots held, reserved ones included."""
        return iter(self._key_of)

    @property
    def reserved(self) -> frozenset[int]:
        """Slots that are reserved and not published yet."""
        unnamed = (slot for slot, key in self._key_of.items() if key is None)
        return frozenset(slot for slot in unnamed if slot not in self._pins)

    def reserve(self) -> int | None:
        """Take a slot for a new snapshot; None if all are reserved or pinned."""
        if len(self._key_of) >= self._max or not self._slots.free_count:
            if not self._loose:
                return None
            self._free(next(iter(self._loose)))
            self.evicted += 1
        [slot] = self._slots.take(1)
        self._key_of[slot] = None
        return slot

    def publish(self, key: bytes, slot: int) -> None:
        """Let others restore a reserved slot; it is given back if the key has a snapshot.

        Raises:
            EngineError: the slot is not reserved.
        """
        self._check_reserved(slot)
        if key in self._slot_of:
            self._free(slot)
            self.find(key)
            return
        self._slot_of[key] = slot
        self._key_of[slot] = key
        self._loose[slot] = None

    def drop(self, slot: int) -> None:
        """Give a reserved slot back.

        Raises:
            EngineError: the slot is not reserved.
        """
        self._check_reserved(slot)
        self._free(slot)

    def find(self, key: bytes) -> int | None:
        """Slot of a snapshot, which counts as used now; None if there is none."""
        slot = self._slot_of.get(key)
        if slot is not None and slot in self._loose:
            self._loose.move_to_end(slot)
        return slot

    def pin(self, slot: int) -> None:
        """Keep a published snapshot until as many ``unpin`` follow.

        Raises:
            EngineError: the slot holds no published snapshot.
        """
        if self._key_of.get(slot) is None:
            raise EngineError(f"state slot {slot} holds no published snapshot to pin")
        self._pins[slot] = self._pins.get(slot, 0) + 1
        self._loose.pop(slot, None)

    def unpin(self, slot: int) -> None:
        """Take a pin off; without pins the snapshot counts as used now.

        Raises:
            EngineError: the slot has no pin.
        """
        pins = self._pins.pop(slot, 0)
        if not pins:
            raise EngineError(f"state slot {slot} is not pinned")
        if pins > 1:
            self._pins[slot] = pins - 1
        elif self._key_of[slot] is None:
            self._free(slot)
        else:
            self._loose[slot] = None

    def forget(self, key: bytes) -> None:
        """Let nobody restore the snapshot of a key any more; a pinned slot is freed when unpinned.

        Nothing happens if there is none.
        """
        slot = self._slot_of.pop(key, None)
        if slot is None:
            return
        self._key_of[slot] = None
        if slot not in self._pins:
            self._free(slot)

    def clear(self) -> None:
        """Forget all published snapshots; reserved slots stay reserved."""
        for key in list(self._slot_of):
            self.forget(key)

    def check_integrity(self) -> None:
        """Compare the books with each other.

        Raises:
            EngineError: they contradict each other.
        """
        published = {slot: key for slot, key in self._key_of.items() if key is not None}
        loose = published.keys() - self._pins.keys()
        if (
            {key: slot for slot, key in published.items()} != self._slot_of
            or len(published) != len(self._slot_of)
            or loose != self._loose.keys()
            or not self._pins.keys() <= self._key_of.keys()
            or len(self._key_of) > self._max
        ):
            raise EngineError("the books of the state snapshots contradict each other")

    def _free(self, slot: int) -> None:
        key = self._key_of.pop(slot)
        if key is not None:
            del self._slot_of[key]
        self._loose.pop(slot, None)
        self._slots.release([slot])

    def _check_reserved(self, slot: int) -> None:
        if self._key_of.get(slot, b"") is not None or slot in self._pins:
            raise EngineError(f"state slot {slot} is not reserved for a snapshot")
