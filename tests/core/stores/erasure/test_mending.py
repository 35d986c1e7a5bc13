"""Do sweeps make up for what is missing, damaged or of another writer, and for nothing else?"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from deepinfer_core.errors import ConfigError, EngineError
from deepinfer_core.stores.erasure.gathering import Patience
from deepinfer_core.stores.erasure.repairs import Haste
from deepinfer_core.stores.erasure.writing import write_frame
from deepinfer_core.testing.contracts.kv_store_suite import block, chain, item, key
from deepinfer_core.testing.faulty_store import flip_in_memory
from deepinfer_core.testing.store_groups import FOREVER, STATES

NAMES = [("text", depth) for depth in range(5)]


def sweep(twelve: Any) -> None:
    twelve.up()
    twelve.store.sweep(deadline_s=FOREVER)
    twelve.up()


def all_there(twelve: Any) -> bool:
    return all(all(twelve.fragments(name)) for name in NAMES)


def test_what_a_dead_child_missed_is_written_when_it_is_back(twelve: Any) -> None:
    twelve.children[4].is_dead = True
    twelve.write(*chain("text", 5))
    sweep(twelve)
    assert not all_there(twelve)
    twelve.children[4].is_dead = False
    sweep(twelve)
    assert all_there(twelve)
    assert twelve.work("repaired") == 5
    for child in (twelve.children[0], twelve.children[11]):
        child.is_dead = True
    assert twelve.read(*NAMES) == ["hit"] * 5


def test_a_scrub_finds_what_nobody_told_of(twelve: Any) -> None:
    """Two children come back empty."""
    twelve.write(*chain("text", 5))
    for child in twelve.children[2:4]:
        child.inner.drop()
    sweep(twelve)
    assert all_there(twelve)
    for child in (twelve.children[0], twelve.children[1]):
        child.is_dead = True
    assert twelve.read(*NAMES) == ["hit"] * 5


def test_a_damaged_fragment_is_replaced_after_a_read(twelve: Any) -> None:
    twelve.write(*chain("text", 5))
    child = twelve.child_of(NAMES[1], 3)
    flip_in_memory(child.inner, child.inner.groups["blocks"], key(NAMES[1]), 3000)
    assert twelve.read(*NAMES) == ["hit"] * 5
    twelve.until(lambda: twelve.work("waiting_for_repair") == 1)
    sweep(twelve)
    assert all_there(twelve)


def test_a_repaired_fragment_is_what_it_was(twelve: Any) -> None:
    """Header and piece, of data and of parity; kept under what the others are."""
    twelve.write(item("a", depth=9, retention="chat"))
    before = []
    for child in twelve.children:
        buffer = bytearray(child.inner.groups["blocks"].block_bytes)
        child.inner.load("blocks", [key("a")], [buffer], deadline_s=FOREVER)
        before.append(buffer)
    for number, child in enumerate(twelve.children):
        child.inner.discard("blocks", [key("a")], deadline_s=FOREVER)
        sweep(twelve)
        buffer = bytearray(len(before[number]))
        child.inner.load("blocks", [key("a")], [buffer], deadline_s=FOREVER)
        assert buffer == before[number]
        (facts,) = child.inner.describe("blocks", [key("a")], deadline_s=FOREVER)
        assert facts is not None
        assert (facts.namespace, facts.depth, facts.retention) == (item(0).namespace, 9, "chat")


def give(twelve: Any, children: slice, data: bytes) -> None:
    """Let some children have fragments of another writer."""
    means = twelve.store._opened.means
    lease = means.pool.lease(means.shapes["blocks"], 1)
    one = replace(item("a"), data=data)
    write_frame(means.shapes["blocks"], means.codec, one, lease, 0)
    for number, child in list(enumerate(twelve.children))[children]:
        child.inner.discard("blocks", [one.key], deadline_s=FOREVER)
        row = means.placing.pieces(one.key)[number]
        fragment = replace(one, data=bytes(lease.fragments(0)[row]))
        child.inner.store("blocks", [fragment], deadline_s=FOREVER)
    lease.release()


def test_fragments_of_another_writer_are_replaced(twelve: Any) -> None:
    twelve.write(item("a"))
    give(twelve, slice(3, 5), block("b"))
    assert twelve.read("a") == ["hit"]
    sweep(twelve)
    for child in (twelve.children[0], twelve.children[1]):
        child.is_dead = True
    assert twelve.read("a") == ["hit"]


def test_a_block_that_nobody_can_read_is_removed_the_second_time(twelve: Any) -> None:
    """The first time it may just be being written; and then it can be stored again."""
    twelve.write(item("a"))
    give(twelve, slice(0, 6), block("b"))
    assert twelve.read("a") != ["hit"]
    sweep(twelve)
    assert any(twelve.fragments("a"))
    sweep(twelve)
    assert not any(twelve.fragments("a"))
    assert twelve.work("given_up") == 1
    assert twelve.write(item("a")) == ["stored"]
    assert twelve.read("a") == ["hit"]


def test_nothing_is_given_up_while_children_are_dead(twelve: Any) -> None:
    """They may have the rest."""
    twelve.write(item("a"))
    for child in twelve.children[:3]:
        child.is_dead = True
    for _ in range(4):
        twelve.store._opened.means.queue.add("blocks", key("a"), Haste.SEEN)
        sweep(twelve)
    for child in twelve.children[:3]:
        child.is_dead = False
    twelve.up()
    assert twelve.read("a") == ["hit"]


def test_a_sweep_without_time_repairs_nothing(twelve: Any) -> None:
    twelve.write(*chain("text", 5))
    twelve.children[0].inner.drop()
    twelve.store.sweep(deadline_s=0.0)
    assert not all_there(twelve)
    sweep(twelve)
    assert all_there(twelve)


def test_a_hung_child_holds_up_no_sweep(make: Callable[..., Any]) -> None:
    """Longer than until it counts as unavailable."""
    twelve = make(patience=Patience(least_s=0.001, hedge_s=0.01, most_s=0.5))
    twelve.write(*chain("text", 5))
    twelve.children[0].inner.drop()
    twelve.children[5].gate.clear()
    sweep(twelve)
    twelve.children[5].gate.set()
    for name in NAMES:
        assert twelve.fragments(name).count(True) == 12


def test_uses_are_told_to_the_child_that_was_not_asked(twelve: Any) -> None:
    day_s = 86_400.0
    twelve.write(item("used"), item("unused"))
    twelve.clock.now_s += 2 * day_s
    assert twelve.read("used") == ["hit"]
    assert twelve.store.sweep(deadline_s=FOREVER) == 0
    twelve.clock.now_s += 1.5 * day_s
    assert twelve.store.sweep(deadline_s=FOREVER) == 1
    assert all(twelve.fragments("used"))
    assert not twelve.work("repaired")
    assert not any(twelve.fragments("unused"))


def test_up_to_two_children_may_be_missing_when_it_opens_and_are_tried_again(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    twelve = make()
    twelve.store.close()

    def refuse(groups: object) -> None:
        raise ConfigError("the disk is gone", hint="look for it")

    for child in twelve.children[:2]:
        monkeypatch.setattr(child, "open", refuse)
    twelve.open()
    assert twelve.write(*chain("text", 5)) == ["stored"] * 5
    assert "child 0: the disk is gone" in twelve.store.report().problem
    monkeypatch.undo()
    sweep(twelve)
    sweep(twelve)
    assert all_there(twelve)
    assert not twelve.store.report().problem
    twelve.store.close()
    for child in twelve.children[:3]:
        monkeypatch.setattr(child, "open", refuse)
    with pytest.raises(ConfigError, match=r"child 0: the disk is gone \(and 2 more children\)"):
        twelve.open()
    assert not any(child.groups for child in twelve.children)
    monkeypatch.undo()


def test_dropping_says_which_child_did_not(twelve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    twelve.write(*chain("text", 5))

    def refuse(namespace: object = None) -> int:
        raise EngineError("it cannot be written to", hint="wait")

    monkeypatch.setattr(twelve.children[6], "drop", refuse)
    with pytest.raises(EngineError, match="child 6: it cannot be written to"):
        twelve.store.drop()
    monkeypatch.undo()
    assert twelve.store.drop() == 0
    assert twelve.read(NAMES[0]) == ["miss"]


def test_a_child_that_raises_is_unavailable_and_a_problem(
    twelve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    twelve.write(item("a"))

    def broken(*args: object, **named: object) -> None:
        raise KeyError("deep")

    monkeypatch.setattr(twelve.child_of("a", 0).inner, "load", broken)
    assert twelve.read("a") == ["hit"]
    twelve.until(lambda: "KeyError" in twelve.store.report().problem)


def test_the_fullest_child_counts(twelve: Any) -> None:
    twelve.store.store("state", [item("s", STATES)], deadline_s=FOREVER)
    twelve.write(*chain("text", 5))
    full = twelve.store.report().used_bytes
    twelve.children[3].inner.drop()
    assert twelve.store.report().used_bytes == full
    assert twelve.store.report().records == 6


def test_the_rate_limits_repairs(make: Callable[..., Any]) -> None:
    twelve = make()
    twelve.store.close()
    twelve.store._repair_rate = 1.0
    twelve.open()
    twelve.write(*chain("text", 20))
    twelve.children[0].inner.drop()
    sweep(twelve)
    assert twelve.work("repaired") == 16  # one batch, which the first byte of the budget begins
    sweep(twelve)
    assert twelve.work("repaired") == 16
