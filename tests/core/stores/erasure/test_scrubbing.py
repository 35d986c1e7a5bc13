"""Is damage found that nobody has read, and do blocks go as a whole?"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from deepinfer_core.interfaces.kv_store import Outcome
from deepinfer_core.stores.erasure import scrubbing
from deepinfer_core.stores.erasure.gathering import Patience
from deepinfer_core.testing.contracts.kv_store_suite import chain, item, key
from deepinfer_core.testing.faulty_store import Passing, flip_in_memory
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER

from tests.core.stores.erasure.conftest import Twelve

DAY_S = 86_400.0
NAMES = [("text", depth) for depth in range(5)]


def sweep(twelve: Any) -> int:
    twelve.up()
    removed: int = twelve.store.sweep(deadline_s=FOREVER)
    twelve.up()
    return removed


def damage(twelve: Any, name: object, piece: int, bit: int = 3000) -> int:
    """Flip a bit of a fragment, counted from the child's record; number of the child."""
    child = twelve.child_of(name, piece)
    flip_in_memory(child.inner, child.inner.groups["blocks"], key(name), bit)
    return int(twelve.children.index(child))


def whole(twelve: Any, name: object) -> int:
    """Children with a fragment that is what it should be."""
    count = 0
    for child in twelve.children:
        room = bytearray(child.inner.groups["blocks"].block_bytes)
        (outcome,) = child.inner.peek("blocks", [key(name)], [room], deadline_s=FOREVER)
        count += outcome.status == "hit"
    return count


RECORD, HEADER = 192 * 8, 160 * 8


@pytest.mark.parametrize("bit", [100, RECORD + 30, RECORD + 400, RECORD + HEADER + 7])
def test_damage_that_nobody_reads_is_found_counted_by_child_and_mended(
    twelve: Any, bit: int
) -> None:
    """Of the child's header, of the fragment's, and of the piece."""
    twelve.write(*chain("text", 5))
    bad = damage(twelve, NAMES[2], 11, bit)
    assert sweep(twelve) == 0
    assert twelve.work(f"bad_fragments_{bad}") == 1
    assert twelve.work("scrubbed") == 5
    assert sweep(twelve) == 0
    assert twelve.work(f"bad_fragments_{bad}") == 1
    assert twelve.work("repaired") == 1
    assert [whole(twelve, name) for name in NAMES] == [12] * 5


def test_a_wrong_fragment_under_a_good_checksum_of_the_child_is_found(twelve: Any) -> None:
    twelve.write(item("a"))
    child = twelve.child_of("a", 4)

    def spoil(data: Any) -> None:
        data[200] ^= 1

    child.spoil = spoil
    sweep(twelve)
    assert twelve.work(f"bad_fragments_{twelve.children.index(child)}") >= 1


def test_a_scrub_is_no_use_of_what_it_reads(twelve: Any) -> None:
    """Otherwise nothing would ever expire."""
    twelve.write(item("a"))
    twelve.clock.now_s += 2 * DAY_S
    assert sweep(twelve) == 0
    assert twelve.work("scrubbed") == 1
    twelve.clock.now_s += 1.5 * DAY_S
    assert sweep(twelve) == 1
    assert not any(twelve.fragments("a"))


def test_a_scrub_reads_what_its_rate_allows_and_goes_on_from_there(
    make: Callable[..., Any],
) -> None:
    """A batch at a time; without a rate none."""
    twelve = make()
    for rate, expected in ((0.0, [0, 0]), (1e-3, [16, 16]), (16e6, [40, 80])):
        twelve.store.close()
        twelve.store._scrub_rate = rate
        twelve.open()
        twelve.write(*chain("text", 40))
        seen = []
        for _ in range(2):
            sweep(twelve)
            seen.append(twelve.work("scrubbed"))
        assert seen == expected


def test_a_scrub_takes_little_of_a_sweep(twelve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing, if it may take no time; what is missing is looked for all the same."""
    monkeypatch.setattr(scrubbing, "_READ_S", 0.0)
    twelve.write(*chain("text", 5))
    twelve.children[0].inner.drop()
    sweep(twelve)
    assert twelve.work("scrubbed") == 0
    assert twelve.work("repaired") == 5


def test_a_block_with_ten_fragments_is_repaired_first(twelve: Any) -> None:
    """Whoever has seen it."""
    twelve.write(*chain("text", 5))
    for name in NAMES:
        twelve.child_of(name, 3).inner.discard("blocks", [key(name)], deadline_s=FOREVER)
    twelve.child_of(NAMES[4], 7).inner.discard("blocks", [key(NAMES[4])], deadline_s=FOREVER)
    opened = twelve.store._opened
    opened.sweeps._scrub.look(FOREVER)
    assert twelve.work("waiting_for_repair") == 5
    assert opened.means.queue.take(1)[0][1] == key(NAMES[4])


def these_first(twelve: Any, *children: Any) -> None:
    """All other children answer later than these do."""
    for child in twelve.children:
        child.delay_s = (lambda: 0.0) if child in children else (lambda: 0.05)


def test_a_block_that_was_read_without_two_of_its_fragments_is_repaired_first(
    twelve: Any,
) -> None:
    """Others that were read later lack one."""
    twelve.write(*chain("text", 3))
    for name, pieces in zip(NAMES, ((0, 1), (0,), (0,)), strict=False):
        for piece in pieces:
            twelve.child_of(name, piece).inner.discard("blocks", [key(name)], deadline_s=FOREVER)
    for name in NAMES[:3]:
        these_first(twelve, twelve.child_of(name, 0), twelve.child_of(name, 1))
        assert twelve.read(name) == ["hit"]
    assert twelve.work("waiting_for_repair") == 3
    queue = twelve.store._opened.means.queue
    assert [queue.take(1)[0][1] for _ in range(3)] == [key(NAMES[at]) for at in (0, 2, 1)]


def test_a_block_of_which_two_writers_left_fragments_is_repaired_first(twelve: Any) -> None:
    twelve.write(*chain("text", 2))
    other = replace(item(NAMES[0]), data=bytes(BLOCKS.block_bytes))
    child = twelve.child_of(NAMES[0], 0)
    child.inner.discard("blocks", [key(NAMES[0])], deadline_s=FOREVER)
    elsewhere = Twelve().open()
    elsewhere.write(other)
    number = twelve.children.index(child)
    room = bytearray(child.inner.groups["blocks"].block_bytes)
    theirs = elsewhere.children[number].inner
    theirs.load("blocks", [other.key], [room], deadline_s=FOREVER)
    child.inner.store("blocks", [replace(other, data=bytes(room))], deadline_s=FOREVER)
    elsewhere.store.close()
    twelve.child_of(NAMES[1], 0).inner.discard("blocks", [key(NAMES[1])], deadline_s=FOREVER)
    for name in NAMES[:2]:
        these_first(twelve, twelve.child_of(name, 0))
        assert twelve.read(name) == ["hit"]
    assert twelve.work("waiting_for_repair") == 2
    assert twelve.store._opened.means.queue.take(1)[0][1] == key(NAMES[0])


def test_orphans_are_dropped_by_the_second_scrub(twelve: Any) -> None:
    """Nine fragments are of no use to anybody."""
    twelve.write(item("a"))
    for child in twelve.children[:3]:
        child.inner.drop()
    sweep(twelve)
    assert twelve.fragments("a").count(True) == 9
    sweep(twelve)
    assert not any(twelve.fragments("a"))
    assert twelve.work("given_up") == 1


def ahead(twelve: Any, number: int, seconds: float) -> None:
    """Let the clock of a child be ahead of those of the others."""
    clock = Passing()
    clock.now_s = twelve.clock.now_s + seconds
    store = twelve.children[number].inner
    store._clock = store._opened.shelf._clock = clock


def test_what_one_child_lets_go_goes_from_all(twelve: Any) -> None:
    """And is counted once, by its reason."""
    twelve.write(*chain("text", 5))
    ahead(twelve, 7, 4 * DAY_S)
    assert sweep(twelve) == 5
    assert not any(any(twelve.fragments(name)) for name in NAMES)
    assert twelve.store.report().removed == {"expired": 5}
    assert twelve.work("waiting_for_repair") == twelve.work("repaired") == 0
    assert twelve.store.departed() == []
    assert twelve.write(*chain("text", 5)) == ["stored"] * 5


def test_blocks_that_different_children_let_go_first_are_each_counted_once(twelve: Any) -> None:
    for number, name in enumerate(NAMES):
        twelve.write(item(name))
        ahead(twelve, number, 4 * DAY_S)
        assert sweep(twelve) == 1
        ahead(twelve, number, 0.0)
    twelve.write(item("a"), item("b"))
    twelve.clock.now_s += 4 * DAY_S
    for number in range(5):
        ahead(twelve, number, 0.0)
    assert sweep(twelve) == 2
    assert twelve.store.report().removed == {"expired": 7}


def test_every_child_is_a_part_of_the_report(twelve: Any) -> None:
    """With its own bytes; one that is not open is left out."""
    twelve.write(*chain("text", 5))
    twelve.children[3].inner.drop()
    report = twelve.store.report()
    assert list(report.parts) == [f"children.{number}" for number in range(12)]
    assert report.parts["children.3"].used_bytes == 0
    assert report.parts["children.4"] == twelve.children[4].report()
    assert 0 < report.high_bytes < report.capacity_bytes
    twelve.children[3].close()
    assert "children.3" not in twelve.store.report().parts


def test_what_a_composite_lets_go_is_told_in_turn(twelve: Any) -> None:
    assert twelve.store.departed() == []
    twelve.write(item("a"), item("b", retention="chat"))
    ahead(twelve, 7, 4 * DAY_S)
    sweep(twelve)
    assert [tuple(one) for one in twelve.store.departed()] == [("blocks", key("a"), "expired")]


def test_what_all_children_let_go_is_counted_once(twelve: Any) -> None:
    twelve.write(*chain("text", 5))
    twelve.clock.now_s += 4 * DAY_S
    assert sweep(twelve) == 5
    assert twelve.store.report().removed == {"expired": 5}


def test_a_block_that_somebody_reads_is_made_whole_instead(twelve: Any) -> None:
    """The reader has met the gap before the sweep did."""
    twelve.write(item("a"))
    number = twelve.children.index(twelve.child_of("a", 0))
    ahead(twelve, number, 4 * DAY_S)
    twelve.children[number].inner.sweep(deadline_s=FOREVER)
    assert twelve.read("a") == ["hit"]
    twelve.until(lambda: twelve.work("waiting_for_repair") == 1)
    assert sweep(twelve) == 0
    assert all(twelve.fragments("a"))


def test_a_child_that_was_away_decides_nothing(twelve: Any) -> None:
    """It has not heard of uses, so what it lets go is lost, and made again."""
    twelve.write(*chain("text", 5))
    twelve.children[7].is_dead = True
    sweep(twelve)
    twelve.children[7].is_dead = False
    for _ in range(2):
        ahead(twelve, 7, 4 * DAY_S)
        assert sweep(twelve) == 0
        assert all(all(twelve.fragments(name)) for name in NAMES)
    ahead(twelve, 7, 8 * DAY_S)
    assert sweep(twelve) == 5


def test_what_was_stored_again_meanwhile_stays(twelve: Any) -> None:
    twelve.write(item("a"))
    child = twelve.children[7].inner
    ahead(twelve, 7, 4 * DAY_S)
    child.sweep(deadline_s=FOREVER)
    assert twelve.write(item("a")) == ["exists"]
    assert sweep(twelve) == 0
    assert not twelve.work("repaired")
    assert all(twelve.fragments("a"))


def test_what_a_child_cannot_tell_now_has_not_gone(
    twelve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It let a fragment go and has got it again, but answers nothing about it."""
    twelve.write(item("a"))
    child = twelve.children[7]
    ahead(twelve, 7, 4 * DAY_S)
    child.inner.sweep(deadline_s=FOREVER)
    assert twelve.write(item("a")) == ["exists"]
    silent = Outcome(status="unavailable", reason="busy")
    monkeypatch.setattr(child, "find", lambda group, keys, *, deadline_s: [silent] * len(keys))
    monkeypatch.setattr(child, "describe", lambda group, keys, *, deadline_s: [None] * len(keys))
    assert sweep(twelve) == 0
    assert all(twelve.fragments("a"))


def test_every_bad_fragment_that_is_read_is_counted_also_of_a_block_that_is_lost(
    twelve: Any,
) -> None:
    twelve.write(item("a"))
    bad = [damage(twelve, "a", piece) for piece in range(3)]
    assert twelve.read("a") == ["corrupt"]
    twelve.until(lambda: all(twelve.work(f"bad_fragments_{child}") == 1 for child in bad))
    assert not twelve.work("waiting_for_repair")


def test_bad_fragments_that_only_a_repair_meets_are_counted(twelve: Any) -> None:
    """A look finds that one fragment is missing; the other is read when that is made again."""
    twelve.write(item("a"))
    twelve.child_of("a", 0).inner.discard("blocks", [key("a")], deadline_s=FOREVER)
    bad = damage(twelve, "a", 11)
    sweep(twelve)
    assert twelve.work(f"bad_fragments_{bad}") == 1
    assert twelve.work("repaired") == 2


def test_children_hear_later_of_uses_that_they_could_not_serve(twelve: Any) -> None:
    """Dead for a moment, asked in vain."""
    twelve.write(item("a"))
    twelve.clock.now_s += 2 * DAY_S
    twelve.child_of("a", 2).is_dead = True
    assert twelve.read("a") == ["hit"]
    twelve.child_of("a", 2).is_dead = False
    sweep(twelve)
    twelve.clock.now_s += 1.5 * DAY_S
    assert sweep(twelve) == 0
    assert all(twelve.fragments("a"))


def test_a_late_child_hears_of_a_use_before_it_sweeps(make: Callable[..., Any]) -> None:
    """It hangs in the read itself: nothing of the block goes because of it."""
    twelve = make(patience=Patience(least_s=0.001, hedge_s=0.002, most_s=1e3))
    twelve.write(item("a"))
    twelve.clock.now_s += 2 * DAY_S
    late = twelve.child_of("a", 0)
    late.gated = ("load",)
    late.gate.clear()
    assert twelve.read("a") == ["hit"]
    twelve.clock.now_s += 1.5 * DAY_S
    assert sweep(twelve) == 0
    assert all(twelve.fragments("a"))


def test_reads_say_how_many_children_were_asked(twelve: Any) -> None:
    twelve.write(*chain("text", 5))
    twelve.read(*NAMES)
    assert twelve.work("read_blocks") == 5
    assert twelve.work("asked_fragments") >= 55
