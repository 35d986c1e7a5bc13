"""How is the pool reached, and how are its calls made with deadlines?

Owns the client and the lanes that call it. Each call is made by a lane that the caller has taken,
is waited for until the deadline, and notes on the lane what failed.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from deepinfer_core.stores.calls import CLOSED

from deepinfer_cluster.circuits import Circuits
from deepinfer_cluster.lanes import Lane, Lanes, NoAnswer
from deepinfer_cluster.pool import NODE_FAILED, Client, Names, Place
from deepinfer_cluster.reach import Reach

__all__ = ["Library", "Link"]

_CLOSE_S = 2.0
"""Calls in flight are waited for so long; otherwise the last of them leaves the pool."""

_TRANSFERS_ONLY = 0
"""Bytes of memory that this process adds to the pool, and that it lets the client keep aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """The client's library, loaded.

    Attributes:
        new_client: makes a client that is not set up.
        put_config: of everything that is put.
    """

    new_client: Callable[[], Client]
    put_config: Any


class Link:
    """The pool, as long as a store is open.

    Args:
        library: the client's.
        place: how the pool is reached.
        names: of what is in it.
        lanes: for this link alone; closed with it.
        circuits: what does not answer.
        is_ready: whether there is a master; setting a client up without one stops the process.
    """

    def __init__(
        self,
        library: Library,
        place: Place,
        names: Names,
        lanes: Lanes,
        circuits: Circuits,
        *,
        is_ready: Callable[[], bool],
    ) -> None:
        self._library, self._place, self._lanes = library, place, lanes
        self._is_ready = is_ready
        self._client: Client | None = None
        self._reach = Reach(
            circuits, lanes, names, connect=self._connected, put_config=library.put_config
        )

    def problem(self) -> str:
        """What does not answer, which is tried again if it is time to; empty: nothing is known."""
        self._reach.try_again()
        return self._reach.problem

    def connect(self, deadline_s: float) -> None:
        """Reach the pool; where that takes longer, it goes on by itself."""
        self._reach.lose_master()
        try:
            with self._lanes.take(deadline_s) as lane:
                self._lanes.call(lane, self._reach.try_master, deadline_s)
        except NoAnswer:
            return

    def close(self) -> None:
        """Leave it."""
        self._lanes.close(self._leave, _CLOSE_S)

    @contextmanager
    def lane(self, deadline_s: float, *, writes: bool = False) -> Iterator[Lane]:
        """Take a lane for calls to parts of the pool that answer; as a context.

        Raises:
            NoAnswer: there is none in time, or what is needed does not answer.
        """
        self._reach.require(writes=writes)
        with self._lanes.take(deadline_s) as lane:
            yield lane

    def exist(self, lane: Lane, names: list[str], deadline_s: float) -> list[int]:
        """1, 0 or negative for each name; -800 if it is there and out of reach."""
        client = self._reached()

        def work() -> list[int]:
            codes = client.batch_is_exist(names)
            self._reach.note(codes)
            there = [name for name, code in zip(names, codes, strict=True) if code > 0]
            far = self._reach.out_of_reach(client, there)
            return [
                NODE_FAILED if name in far else code
                for name, code in zip(names, codes, strict=True)
            ]

        return self._lanes.call(lane, work, deadline_s)

    def get(
        self, lane: Lane, names: list[str], places: Sequence[int], room: int, deadline_s: float
    ) -> list[int]:
        """Read objects into the lane's memory.

        Args:
            lane: that was taken.
            names: of the objects.
            places: where each begins in that memory.
            room: bytes for each; of one that does not fit nothing is read.
            deadline_s: until when is waited.

        Returns:
            Bytes of each, or negative.
        """
        client = self._reached()

        def work() -> list[int]:
            far = self._reach.out_of_reach(client, names)
            near = [(name, at) for name, at in zip(names, places, strict=True) if name not in far]
            asked = [name for name, _ in near]
            codes = (
                client.batch_get_into(
                    asked, [lane.address + at for _, at in near], [room] * len(near)
                )
                if near
                else []
            )
            self._reach.note_reads(client, asked, codes)
            answers = iter(codes)
            return [NODE_FAILED if name in far else next(answers) for name in names]

        return self._lanes.call(lane, work, deadline_s)

    def heads(self, lane: Lane, names: list[str], head_bytes: int, deadline_s: float) -> list[int]:
        """Read the first bytes of objects into the lane's memory, one behind the other.

        Returns:
            Bytes of each, or negative.
        """
        client = self._reached()

        def work() -> list[int]:
            far = self._reach.out_of_reach(client, names)
            near = [(number, name) for number, name in enumerate(names) if name not in far]
            if not near:
                return [NODE_FAILED] * len(names)
            asked = [name for _, name in near]
            places = [[number * head_bytes] for number, _ in near]
            (answers,) = client.get_into_ranges(
                [lane.address], [asked], [places], [[[0]] * len(near)], [[[head_bytes]] * len(near)]
            )
            codes = [code for (code,) in answers]
            self._reach.note_reads(client, asked, codes)
            found = iter(codes)
            return [NODE_FAILED if name in far else next(found) for name in names]

        return self._lanes.call(lane, work, deadline_s)

    def put(
        self, lane: Lane, names: list[str], places: Sequence[int], size: int, deadline_s: float
    ) -> list[int]:
        """Write objects of one size from the lane's memory; 0 or negative for each."""
        client = self._reached()

        def work() -> list[int]:
            addresses = [lane.address + at for at in places]
            codes = client.batch_put_from(
                names, addresses, [size] * len(names), self._library.put_config
            )
            self._reach.note_writes(codes)
            return codes

        return self._lanes.call(lane, work, deadline_s)

    def size(self, lane: Lane, name: str, deadline_s: float) -> int:
        """Bytes of an object, or negative."""
        client = self._reached()
        return self._lanes.call(lane, lambda: client.get_size(name), deadline_s)

    def remove(self, lane: Lane, names: list[str], deadline_s: float) -> list[int]:
        """Remove objects, whoever looks at them; 0 or negative for each."""
        client = self._reached()

        def work() -> list[int]:
            codes = client.batch_remove(names, True)
            self._reach.note(codes)
            return codes

        return self._lanes.call(lane, work, deadline_s)

    def remove_all(self, lane: Lane, pattern: str, deadline_s: float) -> int:
        """Remove every object whose name matches; how many, or negative."""
        client = self._reached()

        def work() -> int:
            code = client.remove_by_regex(pattern, True)
            self._reach.note([code])
            return code

        return self._lanes.call(lane, work, deadline_s)

    def look_at(self, names: list[str]) -> None:
        """Let the master note that objects are used; perhaps not, and without waiting."""
        with suppress(NoAnswer):
            self._reach.require()
            client = self._reached()
            self._lanes.start(lambda lane: self._reach.note(client.batch_is_exist(names)))

    def _reached(self) -> Client:
        client = self._client
        if client is None:
            raise NoAnswer(CLOSED)
        return client

    def _connected(self) -> Client | None:
        """The client, which is set up if it was not; None if the master cannot be reached."""
        if self._client is None and self._is_ready():
            client = self._library.new_client()
            place = self._place
            code = client.setup(
                _with_free_port(place.host or _own_address(place.master)),
                place.metadata,
                _TRANSFERS_ONLY,
                _TRANSFERS_ONLY,
                place.protocol,
                place.devices,
                place.master,
            )
            if (
                code == 0
                and client.register_buffer(self._lanes.address, self._lanes.all_bytes) == 0
            ):
                self._client = client
        return self._client

    def _leave(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.unregister_buffer(self._lanes.address)
            client.close()


def _own_address(peer: str) -> str:
    """The address that this machine reaches a peer from; sends nothing."""
    host, _, port = peer.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(port)))
        return str(probe.getsockname()[0])


def _with_free_port(host: str) -> str:
    """An address for calls of others, of which there are none."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return f"{host}:{probe.getsockname()[1]}"
