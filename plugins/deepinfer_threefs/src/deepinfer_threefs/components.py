"""How are the stores built from their options? Nothing is touched until they are opened."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol

from deepinfer_core.stores.retention import LimitsOptions, limits_of

from deepinfer_threefs.medium import PosixMedium
from deepinfer_threefs.place import StorePlace
from deepinfer_threefs.store import ThreefsStore
from deepinfer_threefs.usrbio import UsrbioMedium

if TYPE_CHECKING:
    from deepinfer_core.plugin import BuildContext

__all__ = ["posix", "usrbio"]

_AGE_STEP_S = 3600.0
_REFRESH_RATIO = 1 / 16
"""A block in constant use costs one entry of a journal in 4.5 hours (agents) or 10.5 (chats)."""


class PlaceOptions(LimitsOptions, Protocol):
    """What the configuration says; see ``options.PosixOptions``."""

    @property
    def folder(self) -> str:
        """Where blocks are kept."""

    @property
    def lane(self) -> str:
        """Subfolder that this process writes to."""

    @property
    def segment_bytes(self) -> int:
        """Length at which a file is full."""

    @property
    def durable(self) -> bool:
        """Whether blocks are on the medium before they can be found."""

    @property
    def refresh_s(self) -> float:
        """Seconds between looks for what others wrote."""


class RingOptions(PlaceOptions, Protocol):
    """What the configuration says; see ``options.UsrbioOptions``."""

    @property
    def ring_entries(self) -> int:
        """Reads of one ring."""

    @property
    def rings(self) -> int:
        """Of each direction."""

    @property
    def retries(self) -> int:
        """Of a read."""

    @property
    def chunk_bytes(self) -> int:
        """Of files."""


def posix(options: PlaceOptions, context: BuildContext) -> ThreefsStore:
    """Build ``threefs.posix``."""
    return _store(options, PosixMedium())


def usrbio(options: RingOptions, context: BuildContext) -> ThreefsStore:
    """Build ``threefs.usrbio``; the module is there, or it would not have been picked."""
    medium = UsrbioMedium(
        importlib.import_module("hf3fs_py_usrbio"),
        ring_entries=options.ring_entries,
        rings=options.rings,
        retries=options.retries,
        chunk_bytes=options.chunk_bytes,
    )
    return _store(options, medium)


def _store(options: PlaceOptions, medium: PosixMedium) -> ThreefsStore:
    place = StorePlace(
        folder=options.folder,
        lane=options.lane,
        segment_bytes=options.segment_bytes,
        durable=options.durable,
        refresh_s=options.refresh_s,
    )
    limits = limits_of(options, age_step_s=_AGE_STEP_S, refresh_ratio=_REFRESH_RATIO)
    return ThreefsStore(place, limits, medium=medium)
