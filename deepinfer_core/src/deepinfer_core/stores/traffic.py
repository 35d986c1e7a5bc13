"""How do blocks come from a store into an engine, and back, without the engine ever waiting?

An engine asks for a prefix, goes on with its steps, and looks now and then for what has come. What
has come lies in *slots* of memory that it shares with whoever fetches, until it gives them back.
What it has computed it puts into empty slots and hands over. No call here blocks, but ``wait``.

Failures are news that a prefix ended early, or counts: an engine computes what does not come.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from deepinfer_core.interfaces.kv_store import BlockGroup, StoreReport

__all__ = [
    "Arrived",
    "BlockTraffic",
    "Ended",
    "Finished",
    "Found",
    "News",
    "Slot",
    "TrafficCounts",
    "Wanted",
]


class Slot(NamedTuple):
    """A place for one block in shared memory.

    Attributes:
        group: name of the block's group.
        number: which slot of the group it is.
        generation: how often it had been given out before; one of an earlier time is stale.
        view: exactly the group's ``block_bytes``, writable.
    """

    group: str
    number: int
    generation: int
    view: memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A prefix that an engine has not got.

    Attributes:
        keys: of its blocks, in order; that behind the ``has`` first is missing.
        retention: class of traffic, which also refreshes what is found.
        group: of the blocks, reuse ``leading``.
        state_group: of states, reuse ``last``, of which the last one at or before the end of what
            has come is fetched as well; None: none is wanted.
        match_s: seconds until it must be known how much is there.
        fetch_s: seconds until all must have come.
        has: leading keys whose blocks the engine has, named for the states at their ends alone.
        expected: leading keys, those of ``has`` counted, whose blocks are likely there: the match
            begins behind them. 0: nobody knows.
    """

    keys: tuple[bytes, ...]
    retention: str
    group: str
    state_group: str | None
    match_s: float
    fetch_s: float
    has: int = 0
    expected: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """It is known how much is there.

    Attributes:
        ticket: of the prefix.
        blocks: leading blocks behind ``has`` that are there, and will be fetched.
    """

    ticket: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """Blocks have come, in order and without a hole behind those that came before.

    Attributes:
        ticket: of the prefix.
        first: place among the wanted keys of the first of them.
        slots: theirs, to be given back.
        is_state: of a state (then it is one): ``first`` is the place of the block at whose end it
            is. It comes after the blocks.
        remote: places of those that came from the memory of other machines.
    """

    ticket: int
    first: int
    slots: tuple[Slot, ...]
    is_state: bool = False
    remote: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing more comes.

    Attributes:
        ticket: of the prefix; not known from now on.
        reason: ``done``: all that was found has come. Else what cut it short: ``miss`` (also: there
            was nothing), ``corrupt``, ``version``, ``timeout``, ``unavailable``, ``full`` (no slot
            was empty in time), ``lost`` (the fetcher died).
    """

    ticket: int
    reason: str


News = Found | Arrived | Ended


class Finished(NamedTuple):
    """A block that an engine computed.

    Attributes:
        slot: with its bytes; given back by being handed over.
        key: of the block; of a state that of the block at whose end it is.
        namespace: root of its chain.
        depth: number in its chain.
        retention: class of traffic.
        parent: key of the block before it, without which it is not stored; empty: it needs none.
    """

    slot: Slot
    key: bytes
    namespace: bytes
    depth: int
    retention: str
    parent: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficCounts:
    """What has happened since the engine started.

    Attributes:
        fetched_blocks, fetched_bytes: that arrived.
        fetched_batches: messages in which they did.
        ended: prefixes by how they ended; also ``cancelled``.
        written: blocks handed over, by outcome: ``stored``, ``exists``, ``timeout``, ``full``,
            ``unavailable``, ``orphan`` (the block before it is not there), ``lost``.
        probes: blocks that were looked for.
        match_s, fetch_s: seconds spent on them, summed.
        match_timeouts: prefixes that ended before it was known how much of them is there.
        writing: blocks that were handed over, and of which it is not known yet.
        no_slots: slots that were wanted for finished blocks, and not empty.
        stores: what stores told lately: that of ``blocks``, and of ``state`` if it is another one.
        restarts: how often the fetcher was started again.
        problem: why nothing can be fetched now; empty: it can.
    """

    fetched_blocks: int = 0
    fetched_bytes: int = 0
    fetched_batches: int = 0
    ended: Mapping[str, int] = field(default_factory=dict)
    written: Mapping[str, int] = field(default_factory=dict)
    probes: int = 0
    match_s: float = 0.0
    fetch_s: float = 0.0
    match_timeouts: int = 0
    writing: int = 0
    no_slots: int = 0
    stores: Mapping[str, StoreReport] = field(default_factory=dict)
    restarts: int = 0
    problem: str = ""


class BlockTraffic(ABC):
    """The engine's end. All calls but ``counts`` come from one thread, that of its steps."""

    @property
    @abstractmethod
    def groups(self) -> Mapping[str, BlockGroup]:
        """What it carries, by name."""

    @property
    def is_remote(self) -> bool:
        """Whether other machines answer; see ``StoreCapabilities``."""
        return False

    @abstractmethod
    def want(self, wanted: Wanted) -> int:
        """Ask for a prefix; the ticket under which news of it come, until ``Ended``.

        If nothing can be fetched now, the first news is its end.

        Raises:
            ValueError: no such group, or a key is not 32 bytes long.
        """

    @abstractmethod
    def cancel(self, ticket: int) -> None:
        """Give up a prefix: no more news of it come, and its slots that nobody saw are empty."""

    @abstractmethod
    def poll(self) -> list[News]:
        """What has happened since the last call, oldest first."""

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """Return once there is news, or when the time has passed."""

    @abstractmethod
    def give_back(self, slots: Sequence[Slot]) -> None:
        """Slots that arrived have been read, or empty ones are not needed.

        Raises:
            ValueError: one has been given back before.
        """

    @abstractmethod
    def empty_slots(self, group: str, wanted: int) -> list[Slot]:
        """Slots to fill with finished blocks: as many as wanted or fewer, perhaps none.

        Raises:
            ValueError: no such group.
        """

    @abstractmethod
    def hand_over(self, finished: Sequence[Finished]) -> None:
        """Let blocks be stored, in order of their chain. What becomes of them is only counted.

        Raises:
            ValueError: a slot is none that was empty, or a block's key, namespace, depth,
                retention or parent does not fit.
        """

    @abstractmethod
    def counts(self) -> TrafficCounts:
        """What has happened so far."""

    @abstractmethod
    def close(self) -> None:
        """End the fetcher; waits a moment for what was handed over. May be called again."""
