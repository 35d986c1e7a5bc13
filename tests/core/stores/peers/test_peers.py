"""Do machines read each other's blocks, and does nobody else?"""

import math
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest
from deepinfer_core.channel.frames import ChannelBroken
from deepinfer_core.errors import ConfigError, EngineError
from deepinfer_core.interfaces.kv_store import BlockGroup
from deepinfer_core.stores.peers import member as member_module
from deepinfer_core.stores.peers import pool as pool_module
from deepinfer_core.stores.peers.messages import (
    CALLING,
    NONCE_BYTES,
    Challenge,
    Located,
    Welcome,
)
from deepinfer_core.stores.peers.store import PeersStore
from deepinfer_core.stores.peers.wire import Wire, host_and_port
from deepinfer_core.stores.retention import Limits
from deepinfer_core.testing.contracts.kv_store_suite import block, chain, item, key
from deepinfer_core.testing.faulty_store import flip_in_memory
from deepinfer_core.testing.free_ports import free_addresses
from deepinfer_core.testing.store_groups import BLOCKS, STATES

LIMITS = Limits(
    capacity_bytes=1 << 20,
    retention_s={"agent": 3600.0, "chat": 3600.0, "state": 180.0},
)
SECRET = b"sixteen bytes and more"
FOREVER = math.inf

Open = Callable[..., PeersStore]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens members; closes those that are still open."""
    with ExitStack() as stack:

        def member(
            name: str, members: list[str], *, secret: bytes = SECRET, **more: Any
        ) -> PeersStore:
            more.setdefault("beat_s", 60.0)
            more.setdefault("call_s", 5.0)
            store = PeersStore(LIMITS, name=name, members=members, secret=secret, **more)
            store.open([BLOCKS, STATES])
            stack.callback(store.close)
            return store

        yield member


def soon(condition: Callable[[], bool]) -> None:
    """Wait for what another thread does; a minute is an error."""
    until_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.005)


def found(store: PeersStore, name: object, group: BlockGroup = BLOCKS) -> str:
    (outcome,) = store.find(group.name, [key(name)], deadline_s=FOREVER)
    return outcome.status


def read(store: PeersStore, name: object, group: BlockGroup = BLOCKS) -> str:
    destination = bytearray(group.block_bytes)
    (outcome,) = store.load(group.name, [key(name)], [destination], deadline_s=FOREVER)
    if outcome.status == "hit":
        assert destination == block(name, group)
    return outcome.status


def put(store: PeersStore, *names: object, group: BlockGroup = BLOCKS) -> None:
    outcomes = store.store(group.name, [item(name, group) for name in names], deadline_s=FOREVER)
    assert {one.status for one in outcomes} == {"stored"}


def trio(opened: Open, **more: Any) -> tuple[list[str], list[PeersStore]]:
    names = free_addresses(3)
    return names, [opened(name, names, **more) for name in names]


def test_a_block_that_one_member_stores_is_read_by_all(opened: Open) -> None:
    _, members = trio(opened)
    for number, member in enumerate(members):
        put(member, number)
    for number in range(3):
        for member in members:
            soon(lambda member=member, number=number: found(member, number) == "hit")
            assert read(member, number) == "hit"


def test_a_block_from_another_machine_is_told_apart_from_an_own_one(opened: Open) -> None:
    _, (one, other, _) = trio(opened)
    put(one, "block")
    destination = bytearray(BLOCKS.block_bytes)
    soon(lambda: found(other, "block") == "hit")
    for member, is_remote in ((one, False), (other, True)):
        (outcome,) = member.load("blocks", [key("block")], [destination], deadline_s=FOREVER)
        assert (outcome.status, outcome.is_remote) == ("hit", is_remote)


def test_states_are_read_by_others_like_blocks(opened: Open) -> None:
    _, members = trio(opened)
    put(members[0], "s", group=STATES)
    soon(lambda: found(members[1], "s", STATES) == "hit")
    assert read(members[1], "s", STATES) == "hit"
    assert read(members[1], "s") == "miss"


def test_many_blocks_come_in_one_call_in_order(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_BYTES_AT_ONCE", 3 * BLOCKS.block_bytes)
    _, members = trio(opened)
    members[0].store("blocks", chain("c", 10), deadline_s=FOREVER)
    members[1].store("blocks", chain("d", 10), deadline_s=FOREVER)
    names = [(text, depth) for depth in range(10) for text in "cd"]
    for name in names:
        soon(lambda name=name: found(members[2], name) == "hit")
    destinations = [bytearray(BLOCKS.block_bytes) for _ in names]
    keys = [key(name) for name in names]
    outcomes = members[2].load("blocks", keys, destinations, deadline_s=FOREVER)
    assert {one.status for one in outcomes} == {"hit"}
    assert destinations == [bytearray(block(name)) for name in names]


def test_one_key_twice_in_a_call_fills_both_places(opened: Open) -> None:
    _, members = trio(opened)
    put(members[0], "twice")
    soon(lambda: found(members[1], "twice") == "hit")
    places = [bytearray(BLOCKS.block_bytes) for _ in range(2)]
    members[1].load("blocks", [key("twice")] * 2, places, deadline_s=FOREVER)
    assert places == [bytearray(block("twice"))] * 2


def test_any_one_dead_member_costs_its_own_blocks_alone(opened: Open) -> None:
    for dead in range(3):
        names, members = trio(opened)
        for number, member in enumerate(members):
            put(member, *((number, one) for one in range(20)))
        for number in range(3):
            for one in range(20):
                for member in members:
                    soon(lambda m=member, n=number, o=one: found(m, (n, o)) == "hit")
        members[dead].close()
        left = [number for number in range(3) if number != dead]
        for one in range(20):
            assert read(members[left[0]], (left[1], one)) == "hit"
            assert read(members[left[1]], (left[0], one)) == "hit"
            assert read(members[left[0]], (dead, one)) == "miss"
        assert names[dead] in members[left[0]].report().problem


def test_a_member_that_starts_again_is_told_with_the_next_beat(opened: Open) -> None:
    names, members = trio(opened, beat_s=0.1)
    put(members[0], *range(20))
    members[1].close()
    members[2].close()
    again = [opened(name, names, beat_s=0.1) for name in names[1:]]
    for number in range(20):
        soon(lambda number=number: found(again[0], number) == "hit")
        assert read(again[0], number) == "hit"


def test_what_an_owner_has_not_any_more_is_forgotten_when_somebody_asks(opened: Open) -> None:
    _, members = trio(opened)
    put(members[0], "gone")
    soon(lambda: found(members[1], "gone") == "hit")
    members[0].discard("blocks", [key("gone")], deadline_s=FOREVER)
    assert found(members[1], "gone") == "hit"
    assert read(members[1], "gone") == "miss"
    assert [found(member, "gone") for member in members] == ["miss"] * 3


def test_what_is_not_said_again_is_forgotten(opened: Open) -> None:
    _, members = trio(opened, beat_s=0.05)
    put(members[0], "silent")
    soon(lambda: found(members[1], "silent") == "hit")
    assert members[0]._opened is not None
    members[0]._opened.announcer.close()
    soon(lambda: found(members[1], "silent") == "miss")


def test_a_block_that_changed_in_its_owners_memory_is_a_miss_elsewhere(opened: Open) -> None:
    _, members = trio(opened)
    put(members[0], "bit")
    soon(lambda: found(members[1], "bit") == "hit")
    assert members[0]._opened is not None
    flip_in_memory(members[0]._opened.local, BLOCKS, key("bit"), 2000)
    assert read(members[1], "bit") == "miss"
    assert members[0].report().removed == {"damaged": 1}


def test_a_block_that_changes_on_the_way_is_corrupt(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, members = trio(opened)
    put(members[0], "way")
    soon(lambda: found(members[1], "way") == "hit")
    member = members[0]._opened
    assert member is not None
    records = member.member._records

    def changed(group: str, keys: list[bytes]) -> list[bytes]:
        return [one[:-1] + bytes([one[-1] ^ 1]) for one in records(group, keys)]

    monkeypatch.setattr(member.member, "_records", changed)
    assert read(members[1], "way") == "corrupt"


def test_a_drop_reaches_every_machine_and_says_who_is_silent(opened: Open) -> None:
    names, members = trio(opened)
    for number, member in enumerate(members):
        put(member, number)
    assert members[0].drop() == 3
    assert members[1].report().records == 0
    members[2].close()
    with pytest.raises(EngineError, match=names[2]):
        members[0].drop()


def test_a_member_that_hangs_is_passed_over_and_then_not_asked(opened: Open) -> None:
    [mute, name] = free_addresses(2)
    with closing(socket.create_server(host_and_port(mute))):  # takes calls, and says nothing
        store = opened(name, [mute, name], call_s=0.05)
        for _ in range(2):
            assert found(store, "x") == "miss"
        assert mute in store.report().problem
        began_s = time.monotonic()
        for number in range(200):
            assert found(store, number) == "miss"
        # One try at most in two seconds: 200 calls of 0.05 s each would take ten.
        assert time.monotonic() - began_s < 5


def test_another_secret_is_refused_on_both_sides(opened: Open) -> None:
    names = free_addresses(2)
    one = opened(names[0], names)
    other = opened(names[1], names, secret=b"another one, as long")
    put(one, "private")
    assert read(other, "private") == "miss"
    assert "another secret" in other.report().problem


def test_a_stranger_is_refused(opened: Open) -> None:
    names = free_addresses(3)
    one = opened(names[0], names[:2])
    stranger = opened(names[2], [names[0], names[2]])
    put(one, "private")
    assert read(stranger, "private") == "miss"
    assert "no member" in stranger.report().problem


def test_a_member_that_does_not_know_the_secret_is_not_believed(opened: Open) -> None:
    names = free_addresses(2)
    store = opened(names[0], names)

    def deceive(server: socket.socket) -> None:
        connection, _ = server.accept()
        wire = Wire(connection, CALLING.reversed())
        wire.greet(FOREVER)
        wire.send(Challenge(bytes(NONCE_BYTES)), FOREVER)
        wire.hear(FOREVER)
        wire.send(Welcome(bytes(32)), FOREVER)
        wire.trust()
        with suppress(ChannelBroken, OSError):
            wire.hear(FOREVER)
            wire.send(Located([[names[1]]]), FOREVER)
        wire.close()

    with closing(socket.create_server(host_and_port(names[1]))) as server:
        thread = threading.Thread(target=deceive, args=(server,))
        thread.start()
        assert found(store, "x") == "miss"
        thread.join()
    assert "does not know the secret" in store.report().problem


def test_whoever_sends_garbage_or_claims_a_long_message_is_cut_off(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_module, "_PROOF_S", FOREVER)  # for what they say, not for its time
    names = free_addresses(2)
    store = opened(names[0], names)
    for said in (
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("<I", 1 << 25),
        struct.pack("<I", 1) + b"x",
    ):
        with closing(socket.create_connection(host_and_port(names[0]))) as connection:
            connection.settimeout(30)
            connection.sendall(said)
            while connection.recv(4096):
                pass  # its greeting, then the end
    put(store, "still here")
    assert read(store, "still here") == "hit"


def test_closing_ends_all_threads(opened: Open) -> None:
    before = threading.active_count()
    _, members = trio(opened)
    put(members[0], 1)
    soon(lambda: found(members[1], 1) == "hit")
    for member in members:
        member.close()
    assert threading.active_count() == before
    assert read(members[1], 1) == "unavailable"


def test_an_address_that_is_taken_is_an_error(opened: Open) -> None:
    [name] = free_addresses(1)
    opened(name, [name])
    with pytest.raises(ConfigError, match=name):
        opened(name, [name])
