"""Which parts of the pool answer, and how is it found out again?

What fails is noted where it fails, by the lane itself, so also behind the back of a caller whose
deadline has passed. What failed is tried again by a lane that nobody waits for. Three things fail
apart: the master; reading from a node, known by its address; and writing, for which the master
chooses nodes and does not tell which.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial

from deepinfer_cluster.circuits import Circuits
from deepinfer_cluster.lanes import Lane, Lanes, NoAnswer
from deepinfer_cluster.pool import (
    MASTER_FAILED,
    NODE_FAILED,
    Client,
    Names,
    is_gone,
    is_masters,
    problem_of,
)

__all__ = ["Reach"]

_MASTER = "master"
_WRITES = "writes"

_TRIED_OBJECTS = 64
"""Of one byte, which try whether all nodes can be written to again. The master scatters them at
random: of 16 nodes a dead one is missed once in 60 times, and then met by a store."""

_NODE_AWAY = problem_of(NODE_FAILED)
_NO_MASTER = problem_of(MASTER_FAILED)


class Reach:
    """What is known of a pool's parts.

    Args:
        circuits: where it is noted.
        lanes: on which it is tried.
        names: of what is in the pool.
        connect: gives a client if the master can be reached; takes seconds if not.
        put_config: of what is put into the pool.
    """

    def __init__(
        self,
        circuits: Circuits,
        lanes: Lanes,
        names: Names,
        *,
        connect: Callable[[], Client | None],
        put_config: object,
    ) -> None:
        self._circuits, self._lanes, self._names = circuits, lanes, names
        self._connect, self._put_config = connect, put_config

    @property
    def problem(self) -> str:
        """What does not answer; empty: nothing of that kind is known."""
        names = self._circuits.names()
        if _MASTER in names:
            return _NO_MASTER.reason
        return _NODE_AWAY.reason if names else ""

    def lose_master(self) -> None:
        """It did not answer."""
        self._circuits.open(_MASTER)

    def require(self, *, writes: bool = False) -> None:
        """Go on only if what is needed answered the last time; see to the rest.

        Args:
            writes: whether all nodes are needed, as nobody knows which will be written to.

        Raises:
            NoAnswer: it did not.
        """
        self.try_again()
        if self._circuits.is_open(_MASTER):
            raise NoAnswer(_NO_MASTER)
        if writes and self._circuits.is_open(_WRITES):
            raise NoAnswer(_NODE_AWAY)

    def try_again(self) -> None:
        """Let lanes try what does not answer, if it is time to; without a master only that."""
        names = self._circuits.names()
        for name in {_MASTER} & names or names:
            sample = self._circuits.take_turn(name)
            if sample is not None and not self._lanes.start(partial(self._try, name, sample)):
                self._circuits.give_turn_back(name)

    def try_master(self) -> None:
        """Ask the master for something, and note whether it answers; called on a lane."""
        client = self._connect()
        if client is None or client.batch_is_exist([self._names.nobodys])[0] < 0:
            self._circuits.open(_MASTER)
        else:
            self._circuits.close(_MASTER)

    def note(self, codes: Sequence[int]) -> None:
        """Look at answers for what the master failed to do."""
        if any(map(is_masters, codes)):
            self._circuits.open(_MASTER)

    def note_reads(self, client: Client, names: Sequence[str], codes: Sequence[int]) -> None:
        """Look at answers of a read for nodes that failed."""
        self.note(codes)
        failed = [one for one, code in zip(names, codes, strict=True) if code == NODE_FAILED]
        for name, node in _nodes_of(client, failed).items():
            self._circuits.open(node, name)

    def note_writes(self, codes: Sequence[int]) -> None:
        """Look at answers of a write for nodes that failed."""
        self.note(codes)
        if NODE_FAILED in codes:
            self._circuits.open(_WRITES)

    def out_of_reach(self, client: Client, names: Sequence[str]) -> set[str]:
        """Those whose nodes do not answer; called on a lane."""
        away = self._circuits.names() - {_MASTER, _WRITES}
        if not away:
            return set()
        return {name for name, node in _nodes_of(client, names).items() if node in away}

    def _try(self, name: str, sample: str, lane: Lane) -> None:
        try:
            client = None if name == _MASTER else self._connect()
            if client is None:
                self.try_master()
            elif name == _WRITES:
                self._try_writes(client, lane)
            else:
                self._try_node(client, name, sample, lane)
        finally:
            self._circuits.give_turn_back(name)

    def _try_node(self, client: Client, node: str, sample: str, lane: Lane) -> None:
        (code,) = client.batch_get_into([sample], [lane.address], [len(lane.view)])
        if code >= 0 or is_gone(code):
            # Gone: the master has given up the node, and all names that pointed there.
            self._circuits.close(node)
        else:
            self._circuits.open(node, sample)

    def _try_writes(self, client: Client, lane: Lane) -> None:
        unique = secrets.token_hex(8)
        names = [f"{self._names.nobodys}{unique}/{number}" for number in range(_TRIED_OBJECTS)]
        ones = [1] * len(names)
        codes = client.batch_put_from(names, [lane.address] * len(names), ones, self._put_config)
        client.batch_remove(names, True)
        if NODE_FAILED in codes:
            self._circuits.open(_WRITES)
        else:
            self._circuits.close(_WRITES)


def _nodes_of(client: Client, names: Sequence[str]) -> dict[str, str]:
    """Addresses of the nodes that objects are read from: of their first copies, dead or alive."""
    if not names:
        return {}
    return {
        name: str(copies[0].get_memory_descriptor().buffer_descriptor.transport_endpoint)
        for name, copies in client.batch_get_replica_desc(list(names)).items()
        if copies and copies[0].is_memory_replica()
    }
