"""Are stores found, chosen, given their options and built like every component?"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.config import load_settings
from deepinfer_core.config.resolution import resolve_components
from deepinfer_core.errors import ConfigError, NoUsableComponent, PluginError
from deepinfer_core.plugin.resolved import load
from deepinfer_core.stores.disk.store import DiskStore
from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.testing.contracts.kv_store_suite import item
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER


def resolved(*overrides: str) -> Any:
    settings = ("plugins.autoload=false", *overrides)
    return resolve_components(load_settings(None, settings, environ={}))


def test_no_store_is_used_unless_one_is_named() -> None:
    assert not resolved().require().fills("kv_store")


def test_the_store_in_memory_is_built_with_its_options() -> None:
    resolution = resolved(
        "components.kv_store.use=core.memory",
        "components.kv_store.options.capacity_bytes=65536",
        "components.kv_store.options.retention_s={long = 1e6}",
    )
    store = load(resolution.require(), "kv_store")
    assert isinstance(store, MemoryStore)
    assert store.report().capacity_bytes == 65536
    store.open([BLOCKS])
    store.touch("blocks", [], retention="long")


def test_a_store_on_a_disk_without_a_folder_names_the_key_and_says_how_it_is_set() -> None:
    with pytest.raises(ConfigError, match="which is not set") as caught:
        resolved("components.kv_store.use=core.disk").require()
    assert "core.disk needs components.kv_store.options.folder" in caught.value.message
    assert "--set components.kv_store.options.folder=VALUE" in caught.value.hint


def test_the_store_on_a_disk_is_built_with_its_options(tmp_path: Path) -> None:
    resolution = resolved(
        "components.kv_store.use=core.disk",
        f"components.kv_store.options.folder={tmp_path}/store",
        "components.kv_store.options.capacity_bytes=1048576",
    )
    store = load(resolution.require(), "kv_store")
    assert isinstance(store, DiskStore)
    assert not (tmp_path / "store").exists()
    store.open([BLOCKS])
    assert store.report().capacity_bytes == 1 << 20
    options = ("writes=false", "durable=false", f"folder={tmp_path}/store")
    reading = resolved(
        "components.kv_store.use=core.disk",
        *(f"components.kv_store.options.{one}" for one in options),
    )
    reader = load(reading.require(), "kv_store")
    store.close()
    reader.open([BLOCKS])
    (outcome,) = reader.store("blocks", [item(0)], deadline_s=FOREVER)
    assert outcome.status == "unavailable"
    reader.close()


def test_a_disk_store_needs_a_folder() -> None:
    resolution = resolved("components.kv_store.use=core.disk")
    (problem,) = resolution.report.problems
    assert "folder" in str(problem)


@pytest.mark.parametrize(
    ("missing", "reason"), [("lmdb", "needs the package lmdb"), ("fcntl", "needs file locks")]
)
def test_a_disk_store_says_what_is_missing(
    missing: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(NoUsableComponent, match=reason):
        resolved("components.kv_store.use=core.disk").require()


def test_auto_takes_the_store_that_needs_no_folder() -> None:
    store = load(resolved("components.kv_store.use=auto").require(), "kv_store")
    assert isinstance(store, MemoryStore)


def test_a_strict_engine_takes_stores() -> None:
    strict = 'strict=["batch_invariant", "deterministic"]'
    resolution = resolved(strict, "components.kv_store.use=core.memory")
    assert resolution.require().fills("kv_store")


def test_a_store_that_nobody_offers_is_an_error_that_names_those_there_are() -> None:
    with pytest.raises(NoUsableComponent, match=r"core\.memory"):
        resolved("components.kv_store.use=acme.store").require()


@pytest.mark.parametrize(
    "option",
    [
        "capacity_bytes=0",
        "capacity_bytes=true",
        "capacity=1",
        "quota_bytes=-1",
        "retention_s={agent = 0}",
        "retention_s={agent = inf}",
        "young_s=-1.0",
        "high_ratio=1.1",
        "low_ratio=0.95",
    ],
)
def test_options_that_no_store_can_keep_are_refused(option: str) -> None:
    resolution = resolved(
        "components.kv_store.use=core.memory", f"components.kv_store.options.{option}"
    )
    assert resolution.resolved is None
    (problem,) = resolution.report.problems
    assert "components.kv_store.options" in str(problem)
    assert not isinstance(problem, PluginError)


def test_stores_load_neither_torch_nor_pydantic() -> None:
    code = (
        "import sys, deepinfer_core.stores.memory, deepinfer_core.stores.disk.store;"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"torch", "pydantic", "pluggy"}.isdisjoint(done.stdout.split())


HERE = '{use="core.memory",options={capacity_bytes=1048576}}'
REMOTE = (
    '{use="core.peers",options={capacity_bytes=1048576,'
    'name="127.0.0.1:7000",members=["127.0.0.1:7000"]}}'
)


@pytest.mark.parametrize("other", [HERE, REMOTE], ids=["here", "remote"])
@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("core.tiered", "tiers=[{here},{other}]"),
        ("core.erasure", "children=[" + ",".join(["{here}"] * 11) + ",{other}]"),
    ],
)
def test_a_store_asks_other_machines_if_one_that_it_is_made_of_does(
    name: str, option: str, other: str
) -> None:
    asked = option.replace("{here}", HERE).replace("{other}", other)
    settings = [f"components.kv_store.use={name}", f"components.kv_store.options.{asked}"]
    if name == "core.erasure":
        settings.append("components.kv_store.options.codec=numpy")
    store = load(resolved(*settings).require(), "kv_store")
    assert store.capabilities.is_remote == (other == REMOTE)
