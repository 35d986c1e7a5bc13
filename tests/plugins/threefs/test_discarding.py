"""Does a block that was discarded stay away, for everybody and for good?"""

from __future__ import annotations

from typing import Any

import pytest
from deepinfer_core.stores.inspection import discard_damaged, verify
from deepinfer_core.testing.contracts.kv_store_suite import chain, item, key
from deepinfer_core.testing.store_groups import FOREVER
from deepinfer_threefs.discards import record_at, record_of

PAGE = 4096


def damage(folder: Any) -> None:
    """Change the first block of the only file."""
    with folder.files()[0].open("r+b") as file:
        file.seek(PAGE + 1000)
        file.write(b"damage")


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_repair_lasts(folder: Any, ask: Any, is_sealed: bool) -> None:
    """Also where the process still writes that stored the block, or was killed."""
    writer = folder.open()
    ask.write(writer, *chain("text", 3))
    if is_sealed:
        writer.close()
    damage(folder)
    store = folder.open()
    found = verify(store)
    assert found.outcomes == {"hit": 2, "corrupt": 1}
    store.close()
    repairing = folder.open()
    assert discard_damaged(repairing, found.damaged) == 1
    repairing.close()
    again = folder.open()
    assert verify(again).outcomes == {"hit": 2}
    assert ask.write(again, *chain("text", 3)) == ["stored", "exists", "exists"]
    again.close()
    last = folder.open()
    assert verify(last).outcomes == {"hit": 3}


def test_others_hear_of_it(folder: Any, ask: Any) -> None:
    store, other = folder.open(), folder.open()
    ask.write(store, *chain("text", 3))
    other.look(deadline_s=FOREVER)
    assert store.discard("blocks", [key(("text", 1))], deadline_s=FOREVER) == 1
    other.look(deadline_s=FOREVER)
    names = [("text", depth) for depth in range(3)]
    assert ask.found(other, *names) == ["hit", "miss", "hit"]
    assert ask.write(store, *chain("text", 2)) == ["exists", "stored"]
    other.look(deadline_s=FOREVER)
    assert ask.read(other, *names) == ["hit"] * 3


def test_it_is_kept_when_the_journal_is_written_anew(
    folder: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder.open()
    ask.write(store, *chain("text", 3))
    assert store.discard("blocks", [key(("text", 0))], deadline_s=FOREVER) == 1
    keeper = store._opened.keeper
    keeper._journal.renew(keeper.catalogue.discards.since(0.0))
    monkeypatch.setattr("deepinfer_threefs.keeping._SPARE_ENTRIES", -10)
    store.sweep(deadline_s=FOREVER)
    (path,) = folder.path.glob(".journals/*")
    assert path.name.endswith("-00000002.log")
    assert ask.found(folder.open(), ("text", 0), ("text", 1)) == ["miss", "hit"]


def test_a_journal_that_cannot_be_written_discards_nothing(
    folder: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder.open()
    ask.write(store, item("a"))

    def fails(*args: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store._opened.keeper._journal, "append", fails)
    assert store.discard("blocks", [key("a")], deadline_s=FOREVER) == 0
    assert "No space left" in store.report().problem
    assert ask.found(store, "a") == ["hit"]


def test_the_place_of_a_record_is_told_in_32_bytes() -> None:
    name, offset = "0123456789abcdef-00000042.seg", (1 << 50) + PAGE
    assert len(record_at(name, offset)) == 32
    assert record_of(record_at(name, offset)) == (name, offset)
