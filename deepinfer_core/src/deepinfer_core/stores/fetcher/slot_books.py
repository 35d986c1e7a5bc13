"""Which slots does the engine have, and which has the fetcher, as the engine knows it?

Slots that arrive come with messages, once for each prefix, and are held until each was given back.
Slots that depart are empty, lent to the engine to be filled, or handed over. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from deepinfer_core.stores.fetcher.layout import GroupSlots
from deepinfer_core.stores.traffic import Slot

__all__ = ["SlotBooks"]


class SlotBooks:
    """Slots of all groups.

    Args:
        groups: by name.
        slot: makes one of a group and a number, as it is now.
        renew: gives a slot out once more.
    """

    def __init__(
        self,
        groups: Mapping[str, GroupSlots],
        slot: Callable[[str, int], Slot],
        renew: Callable[[str, int], int],
    ) -> None:
        self._groups, self._slot, self._renew = groups, slot, renew
        self._held: dict[str, Counter[int]] = {name: Counter() for name in groups}
        self._empty = {
            name: list(reversed(range(one.arriving, one.arriving + one.departing)))
            for name, one in groups.items()
        }
        self._lent: dict[str, set[int]] = {name: set() for name in groups}
        self._handed: dict[str, set[int]] = {name: set() for name in groups}

    def held(self) -> dict[str, dict[int, int]]:
        """Slots that arrived and were not given back, and how often."""
        return {name: dict(+numbers) for name, numbers in self._held.items()}

    def idle(self, group: str) -> int:
        """Slots to be filled that are empty."""
        return len(self._empty[group])

    @property
    def writing(self) -> int:
        """Slots that were handed over and are not empty again."""
        return sum(map(len, self._handed.values()))

    def came(self, group: str, number: int) -> Slot:
        """A slot arrived, once more."""
        self._held[group][number] += 1
        return self._slot(group, number)

    def lend(self, group: str, wanted: int) -> list[Slot]:
        """Empty slots to be filled; as many as wanted or fewer."""
        empty: list[int] = self._empty[group]
        slots: list[Slot] = []
        while empty and len(slots) < wanted:
            number = empty.pop()
            self._renew(group, number)
            self._lent[group].add(number)
            slots.append(self._slot(group, number))
        return slots

    def give_back(self, slots: Sequence[Slot]) -> dict[str, list[int]]:
        """The engine is done with slots.

        Returns:
            Those that arrived, by group: the fetcher is to know.

        Raises:
            ValueError: one is not the engine's; nothing was done with those behind it.
        """
        returned: dict[str, list[int]] = {}
        for slot in slots:
            if slot.number < self._groups[slot.group].arriving:
                self._refuse_stale(slot, self._held[slot.group][slot.number] > 0)
                self._held[slot.group][slot.number] -= 1
                returned.setdefault(slot.group, []).append(slot.number)
            else:
                self._take_lent(slot)
                self._empty[slot.group].append(slot.number)
        return returned

    def hand_over(self, slot: Slot) -> None:
        """A slot was filled.

        Raises:
            ValueError: it was not lent.
        """
        self._take_lent(slot)
        self._handed[slot.group].add(slot.number)

    def written(self, group: str, numbers: Sequence[int]) -> None:
        """Slots that were handed over are empty again."""
        self._handed[group].difference_update(numbers)
        self._empty[group].extend(numbers)

    def lost(self) -> int:
        """The fetcher has gone: what it was to write is not written; how many blocks."""
        count = 0
        for group, numbers in self._handed.items():
            count += len(numbers)
            self._empty[group].extend(numbers)
            numbers.clear()
        return count

    def _take_lent(self, slot: Slot) -> None:
        self._refuse_stale(slot, slot.number in self._lent[slot.group])
        self._lent[slot.group].remove(slot.number)

    def _refuse_stale(self, slot: Slot, is_out: bool) -> None:
        if not is_out or self._slot(slot.group, slot.number).generation != slot.generation:
            raise ValueError(
                f"slot {slot.number} of {slot.group}, generation {slot.generation},"
                " is not the engine's any more"
            )
