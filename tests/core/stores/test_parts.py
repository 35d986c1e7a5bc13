"""Are stores that consist of others chosen and built with them, and is a mistake in one found?"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.config import load_settings
from deepinfer_core.config.resolution import resolve_components
from deepinfer_core.errors import ConfigError, DeepInferError, NoUsableComponent
from deepinfer_core.plugin.resolved import load
from deepinfer_core.stores.disk.store import DiskStore
from deepinfer_core.stores.erasure import isal
from deepinfer_core.stores.erasure.codec import NumpyCodec
from deepinfer_core.stores.erasure.store import ErasureStore
from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.stores.tiered.store import TieredStore

TIERS = """
[plugins]
autoload = false

[components.kv_store]
use = "core.tiered"

[[components.kv_store.options.tiers]]
use = "core.memory"
options = {{ capacity_bytes = 65536 }}

[[components.kv_store.options.tiers]]
{second}
"""


def resolution(folder: Path, second: str) -> Any:
    return resolved_from(folder, TIERS.format(second=second))


def resolved_from(folder: Path, text: str) -> Any:
    path = folder / "deepinfer.toml"
    path.write_text(text)
    return resolve_components(load_settings(path, (), environ={}))


def problem(folder: Path, second: str) -> DeepInferError:
    return only_problem(resolution(folder, second))


def only_problem(found: Any) -> DeepInferError:
    assert found.resolved is None
    (only,) = found.report.problems
    assert isinstance(only, DeepInferError)
    return only


def test_tiers_are_built_each_with_its_options(tmp_path: Path) -> None:
    second = f'use = "core.disk"\noptions = {{ folder = "{tmp_path}/store" }}\ngroups = ["blocks"]'
    resolved = resolution(tmp_path, second).require()
    store = load(resolved, "kv_store")
    assert isinstance(store, TieredStore)
    first, other = store._tiers
    assert isinstance(first.store, MemoryStore)
    assert first.store.report().capacity_bytes == 65536
    assert isinstance(other.store, DiskStore)
    assert (other.name, other.groups) == ("core.disk", ("blocks",))
    assert not (tmp_path / "store").exists()


def test_two_tiers_with_equal_options_are_two_stores(tmp_path: Path) -> None:
    second = 'use = "core.memory"\noptions = { capacity_bytes = 65536 }'
    store = load(resolution(tmp_path, second).require(), "kv_store")
    assert store._tiers[0].store is not store._tiers[1].store


def test_tiers_may_consist_of_others(tmp_path: Path) -> None:
    second = (
        'use = "core.tiered"\n'
        'options = { tiers = [ { use = "core.memory" }, { use = "core.memory" } ] }'
    )
    store = load(resolution(tmp_path, second).require(), "kv_store")
    inner = store._tiers[1].store
    assert isinstance(inner, TieredStore)
    assert isinstance(inner._tiers[1].store, MemoryStore)


@pytest.mark.parametrize(
    ("second", "key"),
    [
        ('use = "core.disk"', "components.kv_store.options.tiers.1.options.folder"),
        (
            'use = "core.memory"\noptions = { capacity = 1 }',
            "components.kv_store.options.tiers.1.options.capacity",
        ),
        (
            'use = "core.tiered"\n'
            'options = { tiers = [ { use = "core.memory" }, '
            '{ use = "core.memory", options = { young_s = -1 } } ] }',
            "components.kv_store.options.tiers.1.options.tiers.1.options.young_s",
        ),
        ('use = "auto"', "components.kv_store.options.tiers.1.use"),
        ("use = 7", "components.kv_store.options.tiers.1.use"),
        ("options = {}", "components.kv_store.options.tiers.1.use"),
        ('use = "core.memory"\noptions = 3', "components.kv_store.options.tiers.1.options"),
        ('use = "core.memory"\ngroup = "a"', "components.kv_store.options.tiers.1.group"),
    ],
)
def test_what_is_wrong_with_a_tier_is_named_by_its_key(
    tmp_path: Path, second: str, key: str
) -> None:
    """And, if it is there, by the file that it stands in."""
    found = problem(tmp_path, second)
    assert isinstance(found, ConfigError)
    assert any(f"{key}{behind}" in found.message for behind in " :,")
    assert "deepinfer.toml" in found.message or "is not set" in found.message


@pytest.mark.parametrize(
    ("use", "message"),
    [
        ("acme.store", "which no loaded plugin offers"),
        ("core.memry", "which no loaded plugin offers"),
    ],
)
def test_a_tier_that_nobody_offers_is_named_by_its_key(
    tmp_path: Path, use: str, message: str
) -> None:
    found = problem(tmp_path, f'use = "{use}"')
    assert isinstance(found, NoUsableComponent)
    assert found.message.startswith("components.kv_store.options.tiers.1.use: ")
    assert message in found.message
    assert "core.memory" in found.hint


def test_a_tier_that_cannot_run_here_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lmdb", None)
    found = problem(tmp_path, f'use = "core.disk"\noptions = {{ folder = "{tmp_path}" }}')
    assert "components.kv_store.options.tiers.1.use: " in found.message
    assert "needs the package lmdb" in found.message
    assert "disk" in found.hint


def test_one_tier_is_too_few(tmp_path: Path) -> None:
    text = '[plugins]\nautoload = false\n[components.kv_store]\nuse = "core.tiered"\n'
    text += '[[components.kv_store.options.tiers]]\nuse = "core.memory"\n'
    found = only_problem(resolved_from(tmp_path, text))
    assert "components.kv_store.options.tiers" in found.message


ERASURE = """
[plugins]
autoload = false

[components.kv_store]
use = "core.erasure"
options = {{ data = 2, parity = 1, {more} children = [{children}] }}
"""


def erasure(folder: Path, count: int, more: str = 'codec = "numpy",') -> Any:
    child = '{ use = "core.memory", options = { capacity_bytes = 65536 } }'
    children = ", ".join([child] * count)
    return resolved_from(folder, ERASURE.format(children=children, more=more))


def test_children_are_built_each_with_its_options(tmp_path: Path) -> None:
    more = 'codec = "numpy", spare = 0, hedge_s = 0.25, hung_s = 3, repair_bytes_per_s = 7,'
    more += "scrub_bytes_per_s = 5,"
    store = load(erasure(tmp_path, 3, more).require(), "kv_store")
    assert isinstance(store, ErasureStore)
    assert isinstance(store._codec, NumpyCodec)
    assert (store._codec.data, store._codec.parity) == (2, 1)
    assert (store._patience.hedge_s, store._patience.most_s) == (0.25, 3.0)
    assert (store._repair_rate, store._scrub_rate) == (7.0, 5.0)
    assert store._spare == 0
    titles, children = zip(*store._stores, strict=True)
    assert titles == tuple(f"child {number} (core.memory)" for number in range(3))
    assert len(set(map(id, children))) == 3
    assert all(one.report().capacity_bytes == 65536 for one in children)


@pytest.mark.parametrize("count", [0, 2, 4])
def test_every_piece_needs_a_child(tmp_path: Path, count: int) -> None:
    found = only_problem(erasure(tmp_path, count))
    assert f"2 + 1 pieces need 3 children, found {count}" in found.message


@pytest.mark.parametrize(
    "more",
    ["hedge_s = 0,", "hung_s = inf,", 'codec = "best",', "repair_bytes_per_s = -1,", "spare = 2,"],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, more: str) -> None:
    found = only_problem(erasure(tmp_path, 3, more))
    assert "components.kv_store.options." in found.message


def test_more_pieces_than_a_code_has_are_refused(tmp_path: Path) -> None:
    text = ERASURE.format(children="", more="").replace("data = 2", "data = 255")
    found = only_problem(resolved_from(tmp_path, text))
    assert "data + parity is at most 255, found 256" in found.message


def test_the_fast_codec_is_taken_unless_the_slow_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never by itself: without the library, building says what to install."""
    if isal.library_path() is not None:
        store = load(erasure(tmp_path, 3, "").require(), "kv_store")
        assert isinstance(store._codec, isal.IsalCodec)
    monkeypatch.setattr(isal, "_PACKAGE", "a-package-that-nobody-has")
    isal._library.cache_clear()
    with pytest.raises(ConfigError, match="pyeclib") as error:
        load(erasure(tmp_path, 3, "").require(), "kv_store")
    assert "./deepinfer_core[erasure]" in str(error.value)
    isal._library.cache_clear()


def test_stores_of_stores_load_neither_torch_nor_pydantic() -> None:
    code = (
        "import sys, deepinfer_core.stores.tiered.build, deepinfer_core.stores.erasure.build;"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"torch", "pydantic", "pluggy"}.isdisjoint(done.stdout.split())
