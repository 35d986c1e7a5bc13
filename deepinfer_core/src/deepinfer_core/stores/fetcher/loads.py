"""Which blocks are on their way or lie in slots, and who still wants them?

Two prefixes that want one block share its slot: it is loaded once, and empty again when both have
given it back. Pure: whoever calls holds a lock, does the loading and tells how it went.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Load", "Loads"]


@dataclass(slots=True, eq=False, kw_only=True)
class Load:
    """A block that somebody wants.

    Attributes:
        key: of the block; empty of one that was there before this fetcher was.
        slot: its number.
        generation: of the slot.
        users: prefixes that wait for it, and those whose slot was not given back yet.
        outcome: empty while somebody may write into the slot, then the status that the store gave.
        owner: ticket of the prefix whose deadline is that of the loading.
        is_remote: it came from the memory of another machine.
    """

    key: bytes
    slot: int
    generation: int
    owner: int
    users: int = 1
    outcome: str = ""
    is_remote: bool = False


class Loads:
    """Blocks and slots of one group.

    Args:
        slots: how many there are.
        held: slots that are in use from the start, and how often.
        renew: gives the generation of a slot that is taken.
    """

    def __init__(self, slots: int, held: Mapping[int, int], renew: Callable[[int], int]) -> None:
        self._renew = renew
        self._empty = [number for number in reversed(range(slots)) if number not in held]
        self._by_key: dict[bytes, Load] = {}
        self._by_slot: dict[int, Load] = {
            number: Load(
                key=b"",
                slot=number,
                generation=0,
                owner=-1,
                users=users,
                outcome="hit",
            )
            for number, users in held.items()
        }

    @property
    def empty_slots(self) -> int:
        """Slots that a block can be loaded into."""
        return len(self._empty)

    def join(self, key: bytes) -> Load | None:
        """Want a block that is there or on its way; None: it is not."""
        load = self._by_key.get(key)
        if load is not None:
            load.users += 1
        return load

    def begin(self, key: bytes, owner: int) -> Load | None:
        """Want a block that is to be loaded from now on; None: no slot is empty."""
        if not self._empty:
            return None
        slot = self._empty.pop()
        load = Load(key=key, slot=slot, generation=self._renew(slot), owner=owner)
        self._by_key[key] = self._by_slot[slot] = load
        return load

    def end(self, load: Load, outcome: str) -> None:
        """Nobody writes into a slot any more; one without its block is empty at once."""
        load.outcome = outcome
        if outcome != "hit" or not load.users:
            self._drop(load)

    def leave(self, load: Load) -> None:
        """One user fewer."""
        load.users -= 1
        if not load.users and load.outcome == "hit":
            self._drop(load)

    def return_slot(self, number: int) -> None:
        """A slot was given back, once."""
        self.leave(self._by_slot[number])

    def _drop(self, load: Load) -> None:
        del self._by_slot[load.slot]
        if self._by_key.get(load.key) is load:
            del self._by_key[load.key]
        self._empty.append(load.slot)
