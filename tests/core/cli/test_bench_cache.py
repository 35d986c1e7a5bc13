"""``deepinfer bench cache``: figures of a small store, and what is refused before anything runs."""

import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.bench.cache import measuring
from deepinfer_core.bench.cache.raw import RawLmdb
from deepinfer_core.stores.disk.index import AGE_STEP_S
from deepinfer_core.stores.disk.store import DiskStore
from deepinfer_core.stores.retention import Limits
from deepinfer_core.testing.store_groups import BLOCKS

Run = Callable[..., subprocess.CompletedProcess[str]]
SMALL = ("--block-bytes", "3888", "--prefixes", "2", "--repeat", "1", "--batch", "3")


@pytest.fixture
def bench(deepinfer: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The action on a store of 4 MiB, with chains that are short."""
    monkeypatch.setattr(measuring, "PREFIX_BLOCKS", 7)
    monkeypatch.setattr(measuring, "LONG_CHAIN_BLOCKS", 40)

    def run(*options: str, store: str = "core.disk") -> subprocess.CompletedProcess[str]:
        durable = ("components.kv_store.options.durable=false",) * (store == "core.disk")
        place = (f"components.kv_store.options.folder={tmp_path}/store",) * (store == "core.disk")
        settings = (
            f"components.kv_store.use={store}",
            "components.kv_store.options.capacity_bytes=4194304",
            *durable,
            *place,
        )
        named = [word for one in settings for word in ("--set", one)]
        return deepinfer("bench", "cache", *named, *options, PLUGINS_AUTOLOAD="0")

    return run


def test_every_figure_has_its_bound_of_the_same_run(bench: Run, tmp_path: Path) -> None:
    done = bench(*SMALL, "--json", "--out", str(tmp_path / "out.json"))
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert json.loads((tmp_path / "out.json").read_text()) == found
    assert [one["name"].partition("[")[0] for one in found] == [
        "cache.store",
        "cache.store.again",
        "cache.load",
        "cache.load.beside_checks",
        "cache.borrow",
        "cache.flat.copy_and_check",
        "cache.lmdb.copy",
        "cache.find",
        "cache.match",
        "cache.find",
        "cache.match",
    ]
    for one in found:
        assert one["ratio"] == pytest.approx(one["value"] / one["bound"]["value"], 1e-5)
        assert "store=core.disk,block=3888" in one["name"]
    assert found[0]["name"].endswith("batch=3,durable=False]")
    assert [one["name"].partition("keys=")[2] for one in found[-4:]] == ["7]", "7]", "40]", "40]"]


def test_store_and_reference_are_written_by_one_thread_that_does_nothing_else(
    bench: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, set[int]] = {"keep": set(), "put": set()}
    keep, put = measuring._keep, RawLmdb.put

    def noted(name: str, call: Callable[..., None], *args: Any) -> None:
        seen[name].add(threading.get_ident())
        call(*args)

    monkeypatch.setattr(measuring, "_keep", lambda *args: noted("keep", keep, *args))
    monkeypatch.setattr(RawLmdb, "put", lambda *args: noted("put", put, *args))
    monkeypatch.setattr(measuring, "_found", lambda *_: [])
    assert bench(*SMALL).returncode == 0
    assert seen["keep"] == seen["put"]
    assert len(seen["put"]) == 1
    assert threading.get_ident() not in seen["put"]


def test_nothing_is_left_of_it(bench: Run, tmp_path: Path) -> None:
    assert bench(*SMALL).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    limits = Limits(capacity_bytes=4 << 20, retention_s={"agent": 1.0}, age_step_s=AGE_STEP_S)
    store = DiskStore(tmp_path / "store", limits, writes=False)
    store.open([BLOCKS])
    assert store.report().records == 0
    store.close()


def test_the_table_shows_machine_figures_and_references(bench: Run) -> None:
    done = bench(*SMALL)
    assert "hardware  " in done.stdout
    assert "copied from a flat map, copies checked" in done.stdout


def test_a_store_without_a_folder_is_measured(bench: Run) -> None:
    done = bench(*SMALL, "--json", store="core.memory")
    assert (done.returncode, done.stderr) == (0, "")
    assert "store=core.memory" in json.loads(done.stdout)[0]["name"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--batch", "0"), "--batch 0"),
        (("--prefixes", "0"), "--prefixes 0"),
        (("--block-bytes", "-1"), "--block-bytes -1"),
        (("--repeat", "0"), "--repeat 0"),
        (("--prefixes", "200", "--block-bytes", "3888"), "unavailable"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    bench: Run, options: tuple[str, ...], message: str
) -> None:
    done = bench(*options)
    assert done.returncode != 0
    assert message in done.stderr


def test_without_a_store_there_is_nothing_to_measure(deepinfer: Run) -> None:
    done = deepinfer("bench", "cache", PLUGINS_AUTOLOAD="0")
    assert done.returncode != 0
    assert "name no store" in done.stderr
