"""Does the pool in one process answer as Mooncake does? Each fact is observed of both."""

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
from deepinfer_cluster.component import load_library
from deepinfer_cluster.link import Library
from deepinfer_cluster.testing.fake_client import library_of
from deepinfer_cluster.testing.fake_pool import FakePool
from deepinfer_cluster.testing.real_pool import RealPool, free_port, until

NODE_BYTES = 16 << 20
MEMORY_BYTES = 1 << 20


class Side(Protocol):
    """One of the two pools, of three nodes, and what can happen to it."""

    library: Library

    def twice(self) -> Library: ...
    def address(self) -> str: ...
    def names(self) -> list[str]: ...
    def kill_node(self) -> None: ...
    def give_node_up(self) -> None: ...
    def kill_master(self) -> None: ...
    def start_master(self) -> None: ...


class FakeSide:
    def __init__(self) -> None:
        self.pool = FakePool(nodes=3, node_bytes=NODE_BYTES)
        self.library, self.names = library_of(self.pool), self.pool.admin().names

    def twice(self) -> Library:
        return library_of(self.pool, 2)

    def address(self) -> str:
        return "master:1"

    def kill_node(self) -> None:
        self.pool.kill(0)

    def give_node_up(self) -> None:
        self.pool.give_up(0)

    def kill_master(self) -> None:
        self.pool.is_up = False

    def start_master(self) -> None:
        self.pool.restart()


class RealSide:
    def __init__(self, pool: RealPool) -> None:
        self.pool = pool
        self.library, self.names = load_library(1), pool.admin.names

    def twice(self) -> Library:
        return load_library(2)

    def address(self) -> str:
        return self.pool.master_address

    def kill_node(self) -> None:
        self.pool.kill(self.pool.nodes[0])

    def give_node_up(self) -> None:
        until(lambda: self.pool.admin.figures().capacity_bytes == 2 * NODE_BYTES)

    def kill_master(self) -> None:
        self.pool.kill(self.pool.master)

    def start_master(self) -> None:
        self.pool.start_master()
        until(lambda: self.pool.admin.figures().capacity_bytes == 3 * NODE_BYTES)


class Memory:
    """Registered with a client."""

    def __init__(self, client: Any) -> None:
        self.bytes = (ctypes.c_char * MEMORY_BYTES)()
        self.address = ctypes.addressof(self.bytes)
        assert client.register_buffer(self.address, MEMORY_BYTES) == 0


@pytest.fixture(params=["fake", "real"])
def side(request: pytest.FixtureRequest) -> Side:
    if request.param == "fake":
        return FakeSide()
    new_pool: Callable[..., RealPool] = request.getfixturevalue("new_pool")
    return RealSide(new_pool(nodes=3, node_bytes=NODE_BYTES))


@pytest.fixture
def client(side: Side) -> Iterator[Any]:
    client = side.library.new_client()
    host = f"127.0.0.1:{free_port()}"
    assert client.setup(host, "P2PHANDSHAKE", 0, 0, "tcp", "", side.address()) == 0
    yield client
    client.close()


@pytest.fixture
def memory(client: Any) -> Memory:
    return Memory(client)


def put(side: Side, client: Any, memory: Memory, names: list[str], size: int) -> list[int]:
    addresses, sizes = [memory.address] * len(names), [size] * len(names)
    return client.batch_put_from(names, addresses, sizes, side.library.put_config)


def test_a_name_that_is_taken_keeps_its_object(side: Side, client: Any, memory: Memory) -> None:
    memory.bytes[:3] = b"abc"
    assert put(side, client, memory, ["a", "a"], 3) == [0, 0]
    memory.bytes[:3] = b"xyz"
    assert put(side, client, memory, ["a"], 2) == [0]
    assert client.get_size("a") == 3
    assert client.batch_get_into(["a"], [memory.address], [3]) == [3]
    assert memory.bytes[:3] == b"abc"


def test_what_is_read_fits_or_is_not_read(side: Side, client: Any, memory: Memory) -> None:
    memory.bytes[:3] = b"abc"
    put(side, client, memory, ["a"], 3)
    at = memory.address
    names = ["a", "a", "none", "a"]
    assert client.batch_get_into(names, [at + 8] * 4, [4, 2, 3, 0]) == [3, -600, -704, -600]
    assert client.batch_is_exist(["a", "none"]) == [1, 0]
    assert client.get_size("none") == -704


def test_parts_of_objects_can_be_read(side: Side, client: Any, memory: Memory) -> None:
    memory.bytes[:3] = b"abc"
    put(side, client, memory, ["a"], 3)
    answers = client.get_into_ranges(
        [memory.address],
        [["a", "none", "a"]],
        [[[8], [9], [10]]],
        [[[0]] * 3],
        [[[2], [2], [4]]],
    )
    assert answers == [[[2], [-704], [-600]]]
    assert memory.bytes[8:10] == b"ab"


def test_an_object_that_was_looked_at_is_removed_by_force_only(
    side: Side, client: Any, memory: Memory
) -> None:
    names = ["looked", "read", "part", "new"]
    put(side, client, memory, names, 3)
    client.batch_is_exist(names[:1])
    client.batch_get_into(names[1:2], [memory.address], [3])
    client.get_into_ranges([memory.address], [names[2:3]], [[[0]]], [[[0]]], [[[1]]])
    assert client.batch_remove([*names, "none"], False) == [-706, -706, -706, 0, -704]
    assert client.batch_remove(names, True) == [0, 0, 0, -704]


def test_names_are_listed_and_removed_by_what_they_look_like(
    side: Side, client: Any, memory: Memory
) -> None:
    names = ["ours/a/1", "ours/b/1", "theirs/a/1", "x/ours/a/1"]
    put(side, client, memory, names, 3)
    assert sorted(side.names()) == names
    assert client.remove_by_regex("^ours/", True) == 2
    assert client.remove_by_regex("^ours/", True) == 0
    assert sorted(side.names()) == names[2:]


def test_memory_is_registered_once(client: Any, memory: Memory) -> None:
    assert client.register_buffer(memory.address + 4096, 4096) == -600
    assert client.unregister_buffer(memory.address) == 0
    assert client.unregister_buffer(memory.address) == -600


def test_what_no_node_has_room_for_is_refused_by_itself(
    side: Side, client: Any, memory: Memory
) -> None:
    large = (ctypes.c_char * (NODE_BYTES + 4096))()
    client.register_buffer(ctypes.addressof(large), len(large))
    codes = client.batch_put_from(
        ["large", "small"],
        [ctypes.addressof(large), memory.address],
        [len(large), 3],
        side.library.put_config,
    )
    assert codes == [-200, 0]
    assert client.unregister_buffer(ctypes.addressof(large)) == 0


def test_a_node_that_ended_fails_until_it_is_given_up(
    side: Side, client: Any, memory: Memory
) -> None:
    names = [f"n{number}" for number in range(64)]
    assert set(put(side, client, memory, names, 1000)) == {0}
    copies = client.batch_get_replica_desc([*names, "none"])
    assert copies.keys() == set(names)
    nodes = {
        name: found.get_memory_descriptor().buffer_descriptor.transport_endpoint
        for name, (found,) in copies.items()
    }
    assert len(set(nodes.values())) == 3
    side.kill_node()
    rooms = [memory.address + 1000 * number for number in range(64)]
    codes = dict(zip(names, client.batch_get_into(names, rooms, [1000] * 64), strict=True))
    assert set(codes.values()) == {1000, -800}
    dead = {nodes[name] for name, code in codes.items() if code < 0}
    assert len(dead) == 1
    assert {name for name in names if nodes[name] in dead} == {n for n in names if codes[n] < 0}
    assert set(client.batch_is_exist(names)) == {1}
    fresh = [f"m{number}" for number in range(64)]
    written = put(side, client, memory, fresh, 1000)
    assert set(written) == {0, -800}
    assert client.batch_is_exist(fresh) == [int(code == 0) for code in written]
    side.give_node_up()
    codes_then = client.batch_get_into(names, rooms, [1000] * 64)
    assert codes_then == [-704 if codes[name] < 0 else 1000 for name in names]
    assert set(put(side, client, memory, [f"o{n}" for n in range(64)], 1000)) == {0}


def test_of_two_copies_the_first_is_read_whatever_became_of_it(
    side: Side, client: Any, memory: Memory
) -> None:
    names = [f"n{number}" for number in range(64)]
    places, sizes = [memory.address] * 64, [1000] * 64
    assert set(client.batch_put_from(names, places, sizes, side.twice().put_config)) == {0}
    nodes = {
        name: [one.get_memory_descriptor().buffer_descriptor.transport_endpoint for one in copies]
        for name, copies in client.batch_get_replica_desc(names).items()
    }
    assert {len(set(on)) for on in nodes.values()} == {2}
    side.kill_node()
    codes = dict(zip(names, client.batch_get_into(names, places, sizes), strict=True))
    (dead,) = {nodes[name][0] for name in names if codes[name] == -800}
    assert codes == {name: -800 if nodes[name][0] == dead else 1000 for name in names}
    assert any(nodes[name][1] == dead for name in names)
    side.give_node_up()
    assert set(client.batch_get_into(names, places, sizes)) == {1000}


def test_a_master_that_ended_forgets_and_its_clients_go_on(
    side: Side, client: Any, memory: Memory
) -> None:
    put(side, client, memory, ["a"], 3)
    side.kill_master()
    assert client.batch_is_exist(["a"]) == [-900]
    assert client.batch_get_into(["a"], [memory.address], [3]) == [-900]
    assert put(side, client, memory, ["b"], 3) == [-900]
    assert client.batch_remove(["a"], True) == [-900]
    assert client.remove_by_regex("^a", True) == -900
    assert not client.batch_get_replica_desc(["a"])
    stranger = side.library.new_client()
    host = f"127.0.0.1:{free_port()}"
    assert stranger.setup(host, "P2PHANDSHAKE", 0, 0, "tcp", "", side.address()) == -600
    side.start_master()
    until(lambda: client.batch_is_exist(["a"]) == [0])
    until(lambda: put(side, client, memory, ["b"], 3) == [0])
    assert client.batch_get_into(["b"], [memory.address], [3]) == [3]
