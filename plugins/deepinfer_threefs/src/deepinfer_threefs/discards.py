"""Which records are not to be read any more, though their bytes are still in a file?

They are known by where they lie, so that the same block can be stored again at once, and whatever
clocks say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepinfer_core.stores.shelf import Address

from deepinfer_threefs.journal import Entry

if TYPE_CHECKING:
    from deepinfer_threefs.catalogue import Place

__all__ = ["Discards", "record_at", "record_of"]

_NAME_BYTES, _OFFSET_BYTES = 25, 7
_SUFFIX = ".seg"


def record_at(file_name: str, offset: int) -> bytes:
    """Where a record lies, as ``Entry.key`` tells it; no two files of a store have one name."""
    return file_name.removesuffix(_SUFFIX).encode() + offset.to_bytes(_OFFSET_BYTES, "little")


def record_of(key: bytes) -> tuple[str, int]:
    """The name of the file and the offset that ``record_at`` was given."""
    name = key[:_NAME_BYTES].decode("ascii", "replace") + _SUFFIX
    return name, int.from_bytes(key[_NAME_BYTES:], "little")


class Discards:
    """Records that were discarded, by anybody; and damaged ones, which others do not know of."""

    def __init__(self) -> None:
        self._damaged: dict[Address, Place] = {}
        self._told: dict[bytes, Entry] = {}

    def __contains__(self, where: bytes) -> bool:
        return where in self._told

    def found_damaged(self, address: Address, place: Place) -> None:
        """Remember where a record lies that is off the books of this process alone."""
        self._damaged[address] = place

    def of(self, address: Address, place: Place | None) -> list[bytes]:
        """Where all records lie that are to be discarded with one that has this place."""
        return [
            record_at(one.segment.name, one.offset)
            for one in (place, self._damaged.get(address))
            if one is not None and one.segment is not None
        ]

    def note(self, entry: Entry) -> None:
        """What was told of a record."""
        self._told[entry.key] = entry

    def since(self, since_s: float) -> list[Entry]:
        """What was told since then."""
        return [entry for entry in self._told.values() if entry.at_s >= since_s]
