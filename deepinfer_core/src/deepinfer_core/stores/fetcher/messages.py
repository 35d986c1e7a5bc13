"""What do an engine and its fetcher say to each other?

Times are points of ``time.monotonic()``, which the processes of one machine share. Slots are named
by their numbers. Of slots that arrive the fetcher says which are in use, of those that depart the
engine; each tells the other when it is done with one.
"""

from __future__ import annotations

from typing import Literal

import importlib_metadata
import msgspec

from deepinfer_core.channel.language import Language
from deepinfer_core.interfaces.kv_store import BlockGroup, StoreReport
from deepinfer_core.stores.fetcher.options import TrafficOptions

__all__ = [
    "ENGINE_LANGUAGE",
    "Begin",
    "Came",
    "FromFetcher",
    "GiveUp",
    "Keep",
    "KeepItem",
    "Known",
    "OpenFailed",
    "Opened",
    "Over",
    "Reported",
    "Return",
    "Seek",
    "Standing",
    "Stop",
    "ToFetcher",
    "Written",
]

WriteOutcome = Literal["stored", "exists", "timeout", "full", "unavailable", "orphan"]


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag=True, array_like=True):
    """Open the store; the first thing that is said.

    Attributes:
        resolved: the choice of components, pickled.
        path: where modules are found.
        telemetry: settings of the log, as JSON.
        groups: of blocks.
        options: sizes and times.
        held: slots that an engine still reads from before, and how often: by group and number.
    """

    resolved: bytes
    path: list[str]
    telemetry: str
    groups: list[BlockGroup]
    options: TrafficOptions
    held: dict[str, dict[int, int]]


class Seek(msgspec.Struct, frozen=True, kw_only=True, tag=True, array_like=True):
    """Fetch a prefix; see ``Wanted``.

    Attributes:
        ticket: names it from now on.
        keys: one behind the other.
        group, state_group, retention, has, expected: see ``Wanted``.
        match_by_s, fetch_by_s: its deadlines.
    """

    ticket: int
    keys: bytes
    has: int
    expected: int
    group: str
    state_group: str | None
    retention: str
    match_by_s: float
    fetch_by_s: float


class GiveUp(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Nobody wants a prefix any more."""

    ticket: int


class Return(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Slots were read, a slot once for each prefix that it came for."""

    group: str
    numbers: list[int]


class KeepItem(msgspec.Struct, frozen=True, array_like=True):
    """A block to be stored; see ``Finished``."""

    number: int
    key: bytes
    namespace: bytes
    depth: int
    retention: str
    parent: bytes


class Keep(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Store blocks."""

    group: str
    items: list[KeepItem]


class Stop(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """End, when what is to be stored is, or at a point in time."""

    by_s: float


class Opened(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The store is open.

    Attributes:
        is_remote: see ``StoreCapabilities``.
    """

    is_remote: bool


class OpenFailed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """It is not, and the fetcher ends.

    Attributes:
        error: name of the class of the error.
        message, hint: of it.
    """

    error: str
    message: str
    hint: str


class Known(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """So many blocks of a prefix are there; so many keys were asked for to know it."""

    ticket: int
    blocks: int
    probes: int


class Came(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Blocks of a prefix lie in slots; see ``Arrived``.

    Attributes:
        slots: number and generation of each.
        remote: places among the slots of those from the memory of other machines.
    """

    ticket: int
    group: str
    first: int
    slots: list[tuple[int, int]]
    is_state: bool
    remote: list[int] = []


class Over(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Nothing more comes of a prefix; see ``Ended``."""

    ticket: int
    reason: str


class Written(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Slots of blocks to be stored are empty again; how many blocks had which outcome."""

    group: str
    numbers: list[int]
    outcomes: dict[WriteOutcome, int]


class Standing(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """How it is, from now on.

    Attributes:
        problem: why the store is asked for nothing; empty: it is.
    """

    problem: str


class Reported(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What a store has to tell; ``TrafficCounts.stores`` has its names."""

    store: str
    report: StoreReport


ToFetcher = Begin | Seek | GiveUp | Return | Keep | Stop
FromFetcher = Opened | OpenFailed | Known | Came | Over | Written | Standing | Reported

ENGINE_LANGUAGE: Language[ToFetcher, FromFetcher] = Language(
    name="deepinfer fetcher",
    revision=2,
    version=importlib_metadata.version("deepinfer-core"),
    says=ToFetcher,
    hears=FromFetcher,
)
"""As the engine speaks it."""
