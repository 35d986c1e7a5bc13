"""Are blocks read right, and at once, while children are dead, wrong, slow or hung?"""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from deepinfer_core.stores.erasure.codec import NumpyCodec
from deepinfer_core.stores.erasure.fragments import FRAGMENT_HEADER_BYTES
from deepinfer_core.stores.erasure.gathering import Patience
from deepinfer_core.testing.contracts.kv_store_suite import chain, item, key
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER

NAMES = [("text", depth) for depth in range(3)]


def test_with_any_two_children_dead_all_reads_are_right(twelve: Any) -> None:
    twelve.write(*chain("text", 3))
    for pair in combinations(range(12), 2):
        for number, child in enumerate(twelve.children):
            child.is_dead = number in pair
        assert twelve.read(*NAMES, "nobody") == ["hit"] * 3 + ["miss"]
        assert twelve.find(*NAMES, "nobody") == ["hit"] * 3 + ["miss"]


def test_with_three_children_dead_blocks_are_unavailable_and_never_wrong(twelve: Any) -> None:
    twelve.write(*chain("text", 3))
    for dead in list(combinations(range(12), 3))[::7]:
        for number, child in enumerate(twelve.children):
            child.is_dead = number in dead
        assert twelve.read(*NAMES) == ["unavailable"] * 3
        assert twelve.find(*NAMES) == ["unavailable"] * 3
        assert twelve.read("nobody")[0] in ("miss", "unavailable")
    for child in twelve.children:
        child.is_dead = False
    twelve.up()
    assert twelve.read(*NAMES) == ["hit"] * 3


def test_eleven_children_are_asked_and_the_twelfth_is_not(make: Callable[..., Any]) -> None:
    twelve = make(patience=Patience(least_s=1e6, hedge_s=1e6, most_s=1e6))
    twelve.write(*chain("text", 3))
    before = [child.calls["load"] for child in twelve.children]
    assert twelve.read(("text", 0)) == ["hit"]
    opened = twelve.store._opened
    twelve.until(lambda: not any(one._in_hand for one in opened.means.children))
    asked = [
        child.calls["load"] - count for child, count in zip(twelve.children, before, strict=True)
    ]
    assert sorted(asked) == [0] + [1] * 11


def test_a_child_is_called_once_for_all_blocks_of_a_call(make: Callable[..., Any]) -> None:
    """Whatever their number: twelve children are twelve calls, not twelve for each block."""
    twelve = make(patience=Patience(least_s=1e6, hedge_s=1e6, most_s=1e6))
    names = [("text", depth) for depth in range(16)]
    assert twelve.write(*chain("text", 16)) == ["stored"] * 16
    assert twelve.find(*names) == twelve.read(*names) == ["hit"] * 16
    opened = twelve.store._opened
    twelve.until(lambda: not any(one._in_hand for one in opened.means.children))
    for child in twelve.children:
        assert {child.calls[call] for call in ("store", "find", "load")} == {1}


def test_data_and_parity_are_spread_over_the_children(twelve: Any) -> None:
    """Of 240 blocks each child is first in 20 on average; a twelfth of each kind of piece."""
    opened = twelve.store._opened
    places = [opened.means.placing.pieces(key(name))[0] for name in range(240)]
    assert {places.count(piece) > 4 for piece in range(12)} == {True}
    spared = {opened.means.placing.orders([key(name)])[0][-1] for name in range(240)}
    assert spared == set(range(12))


BYTES = [0, 16, 20, 44, 60, 76, 108, 144, FRAGMENT_HEADER_BYTES, 300, -1]


@pytest.mark.parametrize("place", BYTES)
@pytest.mark.parametrize("piece", [0, 9, 10])
def test_a_child_that_hands_out_wrong_bytes_is_noticed(twelve: Any, place: int, piece: int) -> None:
    """A bit in each class of positions; the child itself says that all is well."""
    twelve.write(item("a"))
    child = twelve.child_of("a", piece)

    def spoil(data: Any) -> None:
        data[place] ^= 1 << (place % 8)

    child.spoil = spoil
    for other in (None, *twelve.children):
        if other is child:
            continue
        if other is not None:
            other.is_dead = True
        twelve.up()
        assert twelve.read("a") == ["hit"]
        if other is not None:
            other.is_dead = False
    if piece != 10:  # of parity perhaps nobody asked for it
        twelve.until(
            lambda: any(name.startswith("bad_fragments") for name in twelve.store.report().work)
        )


def test_three_wrong_children_make_a_block_corrupt_and_never_wrong(twelve: Any) -> None:
    twelve.write(item("a"))

    def spoil(data: Any) -> None:
        data[300] ^= 1

    for piece in (0, 5, 10):
        twelve.child_of("a", piece).spoil = spoil
    assert twelve.read("a") == ["corrupt"]


def test_a_fragment_of_another_block_under_a_good_checksum_is_noticed(twelve: Any) -> None:
    """A child that mixes up what it keeps."""
    twelve.write(item("a"), item("b"))
    child = twelve.child_of("a", 0)
    wrong = bytearray(child.inner.groups["blocks"].block_bytes)
    child.inner.load("blocks", [key("b")], [wrong], deadline_s=FOREVER)

    def spoil(data: Any) -> None:
        data[:] = wrong

    child.spoil = spoil
    assert twelve.read("a") == ["hit"]


@pytest.mark.parametrize("call", ["load", "find"])
@pytest.mark.parametrize("hung", [1, 2])
def test_hung_children_hold_up_nobody(twelve: Any, call: str, hung: int) -> None:
    """One is spared from the beginning; for the second another is asked. Or this never ends."""
    twelve.write(*chain("text", 3))
    for child in twelve.children[:hung]:
        child.gate.clear()
    for _ in range(4):
        if call == "load":
            assert twelve.read(*NAMES) == ["hit"] * 3
        else:
            assert twelve.find(*NAMES) == ["hit"] * 3
    assert not twelve.children[0].gate.is_set()


def test_a_hung_child_takes_no_more_work_than_its_threads_will_do(twelve: Any) -> None:
    """Behind that it is passed over, and what it was asked for is not kept for ever."""
    twelve.write(item("a"))
    twelve.children[0].gate.clear()
    for _ in range(40):
        assert twelve.read("a") == ["hit"]
    opened = twelve.store._opened
    assert opened.means.children[0]._in_hand <= 16
    twelve.children[0].gate.set()
    twelve.until(lambda: opened.means.children[0]._in_hand == 0)
    assert twelve.read("a") == ["hit"]


def test_three_hung_children_count_as_unavailable_in_the_end(
    make: Callable[..., Any],
) -> None:
    twelve = make(patience=Patience(least_s=0.001, hedge_s=0.002, most_s=0.05))
    twelve.write(item("a"))
    for child in twelve.children[:3]:
        child.gate.clear()
    assert twelve.read("a") == ["unavailable"]


def test_a_read_ends_at_its_deadline_when_too_many_are_hung(twelve: Any) -> None:
    twelve.write(item("a"))
    for child in twelve.children[:3]:
        child.gate.clear()
    buffer = bytearray(BLOCKS.block_bytes)
    soon_s = time.monotonic() + 0.05
    (outcome,) = twelve.store.load("blocks", [key("a")], [buffer], deadline_s=soon_s)
    assert outcome.status == "timeout"


def test_nothing_is_written_into_a_buffer_behind_the_call(twelve: Any) -> None:
    """Whenever a late child wakes up."""
    twelve.write(item("a"), item("b"))
    twelve.children[0].gate.clear()
    buffer = bytearray(BLOCKS.block_bytes)
    twelve.store.load("blocks", [key("a")], [buffer], deadline_s=FOREVER)
    buffer[:] = bytes(len(buffer))
    twelve.children[0].gate.set()
    opened = twelve.store._opened
    twelve.until(lambda: opened.means.children[0]._in_hand == 0)
    assert not any(buffer)
    assert twelve.read("a", "b") == ["hit", "hit"]


def test_a_late_child_makes_the_twelfth_be_asked(make: Callable[..., Any]) -> None:
    twelve = make(patience=Patience(least_s=0.001, hedge_s=0.002, most_s=1e6))
    twelve.write(item("a"))
    twelve.child_of("a", 0).gate.clear()
    twelve.child_of("a", 1).gate.clear()
    assert twelve.read("a") == ["hit"]
    assert twelve.work("hedged") >= 1


def test_a_child_that_fails_makes_the_twelfth_be_asked_at_once(make: Callable[..., Any]) -> None:
    """Nobody is late yet; or this test never ends."""
    twelve = make(patience=Patience(least_s=1e6, hedge_s=1e6, most_s=1e6))
    twelve.write(item("a"))
    twelve.child_of("a", 0).is_dead = True
    twelve.child_of("a", 1).gate.clear()
    assert twelve.read("a") == ["hit"]


def test_a_block_that_was_computed_wrong_is_corrupt(twelve: Any, monkeypatch: Any) -> None:
    """Whole fragments and all."""
    twelve.write(item("a"))
    real = NumpyCodec._combine

    def wrong(
        self: Any, coefficients: Any, pieces: Any, sources: Any, into: Any, made: Any
    ) -> None:
        real(self, coefficients, pieces, sources, into, made)
        into[made[0], 5] ^= 1

    monkeypatch.setattr(NumpyCodec, "_combine", wrong)
    twelve.child_of("a", 0).is_dead = True
    assert twelve.read("a") == ["corrupt"]


def test_one_piece_in_two_children_counts_once(twelve: Any) -> None:
    """With it in four there are nine different ones."""
    twelve.write(item("a"))
    one = twelve.child_of("a", 0)
    fragment = bytearray(one.inner.groups["blocks"].block_bytes)
    one.inner.load("blocks", [key("a")], [fragment], deadline_s=FOREVER)
    again = replace(item("a"), data=bytes(fragment))
    for piece, expected in ((1, "hit"), (2, "hit"), (3, "corrupt")):
        other = twelve.child_of("a", piece)
        other.inner.discard("blocks", [key("a")], deadline_s=FOREVER)
        other.inner.store("blocks", [again], deadline_s=FOREVER)
        assert twelve.read("a") == [expected]


def test_children_may_be_named_in_another_order(twelve: Any) -> None:
    """A fragment says which piece it is."""
    twelve.write(*chain("text", 3))

    class Kept:
        """Stays open, with what it has, whoever closes and opens it."""

        def __init__(self, store: Any) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        def open(self, groups: Any) -> None:
            assert self._store.groups

        def close(self) -> None:
            pass

    order = [3, 1, 4, 0, 5, 9, 2, 6, 8, 7, 11, 10]
    other = twelve.over([Kept(twelve.children[number]) for number in order])
    other.open([BLOCKS])
    before, twelve.store = twelve.store, other
    assert twelve.read(*NAMES) == ["hit"] * 3
    other.close()
    twelve.store = before


@pytest.mark.parametrize(("data", "parity"), [(1, 1), (2, 1), (4, 2), (3, 3)])
def test_other_codes_spare_as_many_children_as_they_say(
    make: Callable[..., Any], data: int, parity: int
) -> None:
    few = make(data=data, parity=parity)
    few.write(*chain("text", 3))
    for dead in combinations(range(data + parity), parity):
        for number, child in enumerate(few.children):
            child.is_dead = number in dead
        few.up()
        assert few.read(*NAMES) == ["hit"] * 3
    few.children[dead[0] - 1].is_dead = True
    assert few.read(*NAMES) == ["unavailable"] * 3


def test_what_nobody_stored_is_a_miss_though_one_child_is_dead(twelve: Any) -> None:
    """It answers first; the others say soon that there is no such block."""
    for number, child in enumerate(twelve.children):
        child.is_dead = number == 1
        child.delay_s = lambda late_s=number / 1000: late_s
    for name in range(24):
        twelve.up()
        assert twelve.find(name) == ["miss"]
        twelve.up()
        assert twelve.read(name) == ["miss"]


def test_what_two_children_lost_and_a_dead_one_may_have_is_a_miss(twelve: Any) -> None:
    """The store works: such a block is no reason to ask it for others less often."""
    assert twelve.write(item("a")) == ["stored"]
    twelve.children[1].is_dead = True
    for child in (twelve.children[3], twelve.children[7]):
        child.inner.drop()
    twelve.up()
    assert twelve.find("a") == ["miss"]
    twelve.up()
    assert twelve.read("a") == ["miss"]
    assert twelve.write(item("a")) == ["stored"]
    assert twelve.read("a") == ["hit"]
