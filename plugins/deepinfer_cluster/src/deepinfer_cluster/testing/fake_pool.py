"""How does a Mooncake pool behave, in one process and without waiting?

Every fact below was observed with ``mooncake-transfer-engine-non-cuda`` 0.3.13.post1 (a master,
nodes and a client on one machine, transfers by TCP); ``tests/mooncake/test_facts.py`` observes the
same of both.

* Putting under a name that is taken answers 0 and changes nothing, whatever the bytes or their
  number, also twice in one call.
* Reading answers with the object's bytes, into room that may be larger; -600 if it is smaller, and
  -704 if there is none. A range that does not lie in the object is -600, too.
* Looking at an object leases it: removing it answers -706 then, unless forced.
* No node with room: -200, for each object on its own. Room is made by the master some time later.
* Of several copies the first one is read, also when its node has ended and that of another has not.
* A node that ended: -800 for reads of what lies there and for writes that the master sends there,
  and each call takes up to a second, until the master gives the node up (``--client_ttl``). Then
  its names are gone. A node that was stopped: calls return after 60 s.
* A master that ended: -900 for everything, after four seconds a call; ``setup`` answers -600, and
  no other thread runs meanwhile. When it is started again it knows no names, and clients that had
  been set up go on by themselves.
* Registering memory that overlaps with registered memory: -600.
* Calls before ``setup`` has answered 0, or behind ``close``, end the process; here they raise.
* What is told of the nodes of names that are not there: nothing.
"""

from __future__ import annotations

import threading
import zlib
from dataclasses import dataclass, field

from deepinfer_cluster.admin import Admin, Figures, NotTold

__all__ = ["FakePool", "Node"]


@dataclass(slots=True)
class Node:
    """Memory of one machine.

    Attributes:
        address: its own.
        capacity_bytes: that objects may take.
        is_alive: whether it answers.
        resumed: not set while it is stopped; calls that meet it wait.
        used_bytes: that objects take.
    """

    address: str
    capacity_bytes: int
    is_alive: bool = True
    resumed: threading.Event = field(default_factory=threading.Event)
    used_bytes: int = 0


@dataclass(slots=True)
class _Kept:
    data: bytearray
    nodes: list[Node]
    is_leased: bool = False


class FakePool:
    """Master and nodes.

    Args:
        nodes: how many.
        node_bytes: memory of each.
    """

    def __init__(self, nodes: int = 1, node_bytes: int = 1 << 20) -> None:
        self.lock = threading.RLock()
        self.nodes = [Node(f"node{number}:1", node_bytes) for number in range(nodes)]
        for node in self.nodes:
            node.resumed.set()
        self.kept: dict[str, _Kept] = {}
        self.evicted = 0
        self.is_up = True
        self.slow_calls = 0
        """Calls that a real client would have waited for: seconds each."""
        self.calls: list[str] = []

    def admin(self) -> Admin:
        """Its master's administration."""
        return _FakeAdmin(self)

    def kill(self, number: int) -> None:
        """A node ends."""
        self.nodes[number].is_alive = False

    def give_up(self, number: int) -> None:
        """The master has not heard of a node for long enough."""
        with self.lock:
            node = self.nodes.pop(number)
            for one in self.kept.values():
                one.nodes = [other for other in one.nodes if other is not node]
            self.kept = {name: one for name, one in self.kept.items() if one.nodes}

    def restart(self) -> None:
        """The master ends and is started again; its nodes come back empty."""
        with self.lock:
            self.kept, self.evicted, self.is_up = {}, 0, True
            for node in self.nodes:
                node.used_bytes = 0

    def evict(self, blocks: int) -> None:
        """The master makes room: what was put first goes first."""
        with self.lock:
            for name in list(self.kept)[:blocks]:
                self.remove(name)
            self.evicted += blocks

    def put(self, name: str, data: bytes, copies: int = 1) -> int:
        """Keep an object, in as many copies or fewer."""
        with self.lock:
            if name in self.kept:
                return 0
            nodes = self._nodes_for(name, len(data))[:copies]
            if not nodes:
                return -200
            if not all(node.is_alive for node in nodes):
                return -800
            for node in nodes:
                node.used_bytes += len(data)
            self.kept[name] = _Kept(bytearray(data), nodes)
            return 0

    def read(self, name: str, at: int, size: int, *, is_range: bool) -> bytes | int:
        """Bytes of an object."""
        with self.lock:
            one = self.kept.get(name)
        if one is None:
            return -704
        node = one.nodes[0]
        node.resumed.wait()
        if not node.is_alive:
            return -800
        one.is_leased = True
        is_outside = at + size > len(one.data) if is_range else size < len(one.data)
        if is_outside:
            return -600
        return bytes(one.data[at : at + size])

    def remove(self, name: str, *, force: bool = True) -> int:
        """Forget an object."""
        with self.lock:
            one = self.kept.get(name)
            if one is None:
                return -704
            if one.is_leased and not force:
                return -706
            for node in one.nodes:
                node.used_bytes -= len(one.data)
            del self.kept[name]
            return 0

    def _nodes_for(self, name: str, size: int) -> list[Node]:
        """Those with room, in an order as good as random, and the same for the same name."""
        fitting = [n for n in self.nodes if n.used_bytes + size <= n.capacity_bytes]
        first = zlib.crc32(name.encode()) % max(len(fitting), 1)
        return fitting[first:] + fitting[:first]


class _FakeAdmin(Admin):
    def __init__(self, pool: FakePool) -> None:
        self._pool = pool

    def is_ready(self) -> bool:
        return self._pool.is_up

    def names(self) -> list[str]:
        self._require()
        return list(self._pool.kept)

    def figures(self) -> Figures:
        self._require()
        return Figures(
            records=len(self._pool.kept),
            used_bytes=sum(node.used_bytes for node in self._pool.nodes),
            capacity_bytes=sum(node.capacity_bytes for node in self._pool.nodes),
            evicted=self._pool.evicted,
        )

    def _require(self) -> None:
        if not self._pool.is_up:
            raise NotTold("the master does not answer")
