"""Do journals stay small, and go when they say nothing any more?"""

from __future__ import annotations

from typing import Any

from deepinfer_core.testing.contracts.kv_store_suite import chain, item, key
from deepinfer_core.testing.store_groups import FOREVER
from deepinfer_threefs import keeping

DAY_S = 86400.0


def test_a_journal_is_written_anew_before_it_grows_without_end(folder: Any, ask: Any) -> None:
    store = folder.open()
    ask.write(store, *chain("text", 8))
    for _ in range(keeping._SPARE_ENTRIES // 8 + 8):
        folder.now_s += DAY_S / 4
        store.touch("blocks", [key(name) for name in [("text", depth) for depth in range(8)]])
        store._opened.keeper._tell_uses()
    (path,) = folder.path.glob(".journals/*")
    assert path.stat().st_size > 96 * keeping._SPARE_ENTRIES
    store._opened.keeper._watch.is_steady()
    store.sweep(deadline_s=FOREVER)
    (renewed,) = folder.path.glob(".journals/*")
    assert renewed.stat().st_size == 96 * 8
    again = folder.open()
    again.sweep(deadline_s=FOREVER)
    again.sweep(deadline_s=FOREVER)
    assert ask.found(again, ("text", 7)) == ["hit"]


def test_journals_of_the_dead_go_when_they_say_nothing_any_more(folder: Any, ask: Any) -> None:
    dead = folder.open()
    ask.write(dead, item("a"))
    folder.now_s += DAY_S
    ask.read(dead, "a")
    dead.close()
    (path,) = folder.path.glob(".journals/*")
    store = folder.open()
    for days, is_there in ((6, True), (2, False)):
        folder.now_s += days * DAY_S
        store.sweep(deadline_s=FOREVER)
        assert path.exists() is is_there


def test_an_entry_that_is_damaged_says_nothing(folder: Any, ask: Any) -> None:
    store = folder.open()
    ask.write(store, *chain("text", 2))
    folder.now_s += DAY_S
    store.touch("blocks", [key(("text", 0))])
    store.touch("blocks", [key(("text", 1))])
    store.close()
    (path,) = folder.path.glob(".journals/*")
    data = bytearray(path.read_bytes())
    assert len(data) == 2 * 96
    data[76 + 6] ^= 1  # of the first one's time, which is then far from what it was
    path.write_bytes(data)
    folder.now_s += 2.5 * DAY_S
    again = folder.open()
    again.sweep(deadline_s=FOREVER)
    again.sweep(deadline_s=FOREVER)
    assert ask.found(again, ("text", 0), ("text", 1)) == ["miss", "hit"]
