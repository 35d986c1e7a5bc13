"""Is a block kept with enough fragments, and not at all with fewer?"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from deepinfer_core.stores.erasure.gathering import Patience
from deepinfer_core.stores.erasure.writing import write_frame
from deepinfer_core.testing.contracts.kv_store_suite import block, chain, item, key
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER


def test_with_one_child_dead_a_block_is_kept_and_waits_for_repair(twelve: Any) -> None:
    twelve.children[4].is_dead = True
    assert twelve.write(*chain("text", 3)) == ["stored"] * 3
    assert twelve.work("waiting_for_repair") == 3
    for number, child in enumerate(twelve.children):
        child.is_dead = number in (4, 9)
    twelve.up()
    assert twelve.read(*(("text", depth) for depth in range(3))) == ["hit"] * 3


def test_with_two_dead_it_is_kept_and_repaired_first(twelve: Any) -> None:
    twelve.children[4].is_dead = True
    assert twelve.write(item("one missing")) == ["stored"]
    twelve.children[5].is_dead = True
    assert twelve.write(item("two missing")) == ["stored"]
    opened = twelve.store._opened
    assert opened is not None
    assert opened.means.queue.take(1)[0][1] == key("two missing")


def test_with_three_dead_nothing_is_kept(twelve: Any) -> None:
    for child in twelve.children[:3]:
        child.is_dead = True
    assert twelve.write(*chain("text", 3)) == ["unavailable"] * 3
    twelve.until(lambda: not any(child.inner.report().records for child in twelve.children))
    assert twelve.work("abandoned") == 3
    for child in twelve.children:
        child.is_dead = False
    twelve.up()
    assert twelve.read(("text", 0)) == ["miss"]
    assert twelve.write(*chain("text", 3)) == ["stored"] * 3


def test_of_a_chain_nothing_is_kept_behind_the_first_that_is_not(twelve: Any) -> None:
    """Though other children took what is behind it."""

    def refusing(real: Callable[..., Any]) -> Callable[..., Any]:
        def store(group: str, items: Any, *, deadline_s: float) -> Any:
            known = [one for one in items if one.key != key(("text", 2))]
            cut = items[: next((n for n, one in enumerate(items) if one not in known), len(items))]
            done = real(group, cut, deadline_s=deadline_s)
            refused = replace(done[0], status="unavailable", reason="told so")
            return done + [refused] * (len(items) - len(cut))

        return store

    for child in twelve.children[:3]:
        child.inner.store = refusing(child.inner.store)
    assert twelve.write(*chain("text", 5)) == ["stored"] * 2 + ["unavailable"] * 3
    twelve.until(lambda: all(not any(twelve.fragments(("text", depth))) for depth in (2, 3, 4)))
    names = [("text", depth) for depth in range(5)]
    assert twelve.read(*names) == ["hit"] * 2 + ["miss"] * 3


def test_a_hung_child_holds_up_no_writer_and_is_heard_later(twelve: Any) -> None:
    twelve.children[7].gate.clear()
    assert twelve.write(*chain("text", 3)) == ["stored"] * 3
    assert not twelve.children[7].gate.is_set()
    twelve.children[7].gate.set()
    twelve.until(lambda: all(all(twelve.fragments(("text", depth))) for depth in range(3)))
    assert twelve.work("waiting_for_repair") == 0


def test_a_child_that_hangs_is_asked_nothing_until_it_answers(make: Callable[..., Any]) -> None:
    """With another one dead, the first write waits for it, and no other."""
    twelve = make(patience=Patience(least_s=0.001, hedge_s=0.002, most_s=1.0))
    twelve.children[0].is_dead = True
    twelve.children[7].gate.clear()
    assert twelve.write(item(0)) == ["stored"]
    asked = twelve.children[7].calls["store"]
    for name in range(1, 5):
        assert twelve.write(item(name)) == ["stored"]
    assert twelve.children[7].calls["store"] == asked
    twelve.children[7].gate.set()
    opened = twelve.store._opened
    twelve.until(lambda: not opened.means.children[7]._in_hand)
    assert twelve.write(item(5)) == ["stored"]
    assert twelve.fragments(5).count(True) == 11


def test_a_hung_child_that_fails_in_the_end_is_made_up_for(twelve: Any) -> None:
    twelve.children[7].gate.clear()
    assert twelve.write(item("a")) == ["stored"]
    twelve.children[7].is_dead = True
    twelve.children[7].gate.set()
    twelve.until(lambda: twelve.work("waiting_for_repair") == 1)


def test_what_a_late_child_kept_of_an_abandoned_block_is_taken_back(
    make: Callable[..., Any],
) -> None:
    twelve = make(patience=Patience(least_s=0.001, hedge_s=0.002, most_s=0.05))
    for child in twelve.children[:2]:
        child.is_dead = True
    for child in twelve.children[2:4]:
        child.gated = ("store",)
        child.gate.clear()
    assert twelve.write(item("a")) == ["unavailable"]
    for child in twelve.children[2:4]:
        child.gate.set()
    twelve.until(lambda: not any(child.inner.report().records for child in twelve.children))
    assert twelve.children[2].calls["discard"] == 1


def test_what_all_children_have_exists(twelve: Any) -> None:
    assert twelve.write(item("a")) == ["stored"]
    assert twelve.write(item("a"), item("a")) == ["exists"] * 2
    twelve.children[0].is_dead = True
    assert twelve.write(item("a")) == ["exists"]


def other_writer(twelve: Any, children: slice, data: bytes) -> None:
    """Another process stores a block with these bytes, and reaches only some children."""
    means = twelve.store._opened.means
    shape = means.shapes["blocks"]
    lease = means.pool.lease(shape, 1)
    one = replace(item("a"), data=data)
    write_frame(shape, means.codec, one, lease, 0)
    for number, child in list(enumerate(twelve.children))[children]:
        row = means.placing.pieces(one.key)[number]
        fragment = replace(one, data=bytes(lease.fragments(0)[row]))
        (outcome,) = child.inner.store("blocks", [fragment], deadline_s=FOREVER)
        assert outcome.status == "stored"
    lease.release()


def test_fragments_of_an_equal_block_complete_each_other(twelve: Any) -> None:
    other_writer(twelve, slice(0, 5), block("a"))
    assert twelve.write(item("a")) == ["stored"]
    assert twelve.read("a") == ["hit"]


@pytest.mark.parametrize("theirs", [1, 2, 3, 6, 9, 10, 11])
def test_fragments_of_two_writers_never_meet(twelve: Any, theirs: int) -> None:
    """Whoever has enough wins; with nobody having enough the later one replaces the other."""
    other_writer(twelve, slice(0, theirs), block("b"))
    (status,) = twelve.write(item("a"))
    assert status == ("stored" if theirs < 10 else "exists")
    buffer = bytearray(BLOCKS.block_bytes)
    (outcome,) = twelve.store.load("blocks", [key("a")], [buffer], deadline_s=FOREVER)
    if theirs < 10:
        assert (outcome.status, bytes(buffer)) == ("hit", block("a"))
    else:
        assert (outcome.status, bytes(buffer)) == ("hit", block("b"))
        twelve.until(lambda: twelve.fragments("a").count(True) == theirs)


@pytest.mark.parametrize(("lost", "status"), [(1, "stored"), (2, "stored"), (3, "unavailable")])
def test_what_nobody_can_read_is_replaced_though_a_child_is_lost(
    twelve: Any, lost: int, status: str
) -> None:
    """Eleven, or ten, are enough, whatever of an older block is in them."""
    other_writer(twelve, slice(3, 12), block("b"))
    for child in twelve.children[:lost]:
        child.is_dead = True
    assert twelve.write(item("a"), item("behind")) == [status] * 2
    twelve.up()
    assert twelve.read("a", "behind").count("hit") == (2 if lost < 3 else 0)


def test_fragments_that_do_not_go_are_not_counted(twelve: Any) -> None:
    other_writer(twelve, slice(0, 9), block("b"))
    for child in twelve.children[:3]:
        child.inner.discard = lambda *args, **named: 0
    assert twelve.write(item("a")) == ["unavailable"]
