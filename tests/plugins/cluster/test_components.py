"""Is the store found by its entry point, given its options, and told what is missing?"""

import ctypes
import importlib.machinery
import sys
import types
from collections.abc import Mapping
from typing import Any

import pytest
from deepinfer_cluster.options import MooncakeOptions
from deepinfer_cluster.probe import LIBRARIES, mooncake
from deepinfer_cluster.store import MooncakeStore
from deepinfer_core.config import load_settings
from deepinfer_core.config.resolution import resolve_components
from deepinfer_core.plugin import DeviceFacts, ModelNeeds, ProbeContext
from deepinfer_core.plugin.resolved import load
from pydantic import ValidationError

# Whether a component can be used is asked in a process of its own, which no fixture reaches.
FOUND = pytest.mark.skipif(
    not mooncake(
        ProbeContext(device=DeviceFacts(device="cpu"), needs=ModelNeeds(), versions={})
    ).usable,
    reason="nox -s mooncake runs this where Mooncake and its libraries are (docs/mooncake.md)",
)
NEEDED = {"master": "127.0.0.1:1", "admin_url": "http://127.0.0.1:1"}


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that looks like Mooncake's, and all libraries that it is linked with."""
    parent, store = types.ModuleType("mooncake"), types.ModuleType("mooncake.store")
    parent.__spec__ = importlib.machinery.ModuleSpec("mooncake", None)
    parent.store = store
    store.MooncakeDistributedStore = object
    store.ReplicateConfig = type("ReplicateConfig", (), {})
    monkeypatch.setitem(sys.modules, "mooncake", parent)
    monkeypatch.setitem(sys.modules, "mooncake.store", store)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: name)


def resolved(options: Mapping[str, str]) -> Any:
    values = [f"components.kv_store.options.{name}={value}" for name, value in options.items()]
    use = "components.kv_store.use=cluster.mooncake"
    return resolve_components(load_settings(None, (use, *values), environ={}))


def context(**versions: str) -> ProbeContext:
    names = {name.replace("_", "-"): version for name, version in versions.items()}
    return ProbeContext(device=DeviceFacts(device="cpu"), needs=ModelNeeds(), versions=names)


@FOUND
def test_a_store_is_built_with_its_options_and_reaches_for_nothing() -> None:
    options = {
        "master": "'127.0.0.1:1'",
        "admin_url": "'http://127.0.0.1:1'",
        "pool": "seven",
        "replicas": "2",
        "retention_s": "{long = 1e6}",
        "lane_bytes": "8192",
        "lanes": "3",
        "sweeps": "false",
    }
    store = load(resolved(options).require(), "kv_store")
    assert isinstance(store, MooncakeStore)
    assert store.capabilities.max_block_bytes == 8192 - 192
    assert store.capabilities.is_remote
    assert store._library.put_config.replica_num == 2
    assert store._terms.pool == "seven"
    assert dict(store._terms.retention_s) == {
        "agent": 259200.0, "chat": 604800.0, "state": 180.0, "long": 1e6,
    }  # fmt: skip
    assert store.report().problem == "the store is closed"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("master", "127.0.0.1"),
        ("master", "http://127.0.0.1:1"),
        ("admin_url", "127.0.0.1:1"),
        ("admin_url", "http://127.0.0.1:1/metrics"),
        ("pool", "a/b"),
        ("pool", "A.*"),
        ("protocol", "ucx"),
        ("replicas", 0),
        ("retention_s", {"agent": 0}),
        ("lanes", 0),
        ("lane_bytes", 5000),
        ("retry_s", 0),
        ("nodes", 1),
    ],
)
def test_options_that_no_pool_can_keep_are_refused(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        MooncakeOptions(**{**NEEDED, name: value})


@pytest.mark.parametrize("left_out", NEEDED)
def test_a_store_needs_a_master_and_its_administration(left_out: str) -> None:
    options = {name: value for name, value in NEEDED.items() if name != left_out}
    with pytest.raises(ValidationError, match=left_out):
        MooncakeOptions(**options)


@FOUND
def test_what_is_wrong_with_options_is_said_where_they_are() -> None:
    (problem,) = resolved({"master": "'127.0.0.1:1'"}).report.problems
    assert "components.kv_store.options" in str(problem)
    assert "admin_url" in str(problem)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mooncake", None)
    verdict = mooncake(context())
    assert not verdict.usable
    assert verdict.reason == "needs the package mooncake"
    assert "./plugins/deepinfer_cluster[mooncake]" in verdict.fix


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("missing", [*([one] for one in LIBRARIES), [*LIBRARIES]])
def test_exactly_the_missing_libraries_are_named(
    missing: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_library(name: str) -> str:
        if name in missing:
            raise OSError(name)
        return name

    monkeypatch.setattr(ctypes, "CDLL", load_library)
    verdict = mooncake(context())
    assert not verdict.usable
    assert [name for name in LIBRARIES if name in verdict.reason] == missing
    assert verdict.fix.split()[2:] == [LIBRARIES[name] for name in missing]


@pytest.mark.usefixtures("package")
def test_a_build_that_is_there_is_told_by_its_version() -> None:
    verdict = mooncake(context(mooncake_transfer_engine_non_cuda="0.3.13", numpy="2"))
    assert verdict.usable
    assert verdict.reason == "mooncake-transfer-engine-non-cuda 0.3.13"


@pytest.mark.parametrize(
    ("name", "value", "form"),
    [
        ("master", "x", "expected HOST:PORT"),
        ("admin_url", "x", "expected http://HOST:PORT"),
        ("pool", "A", "expected 1 to 32 of the characters a-z, 0-9 and _"),
        ("retention_s", {"Agent": 5.0}, "a class is a word"),
    ],
)
def test_a_wrong_option_says_which_form_is_wanted(name: str, value: object, form: str) -> None:
    with pytest.raises(ValidationError) as caught:
        MooncakeOptions(**{**NEEDED, name: value})
    (item,) = caught.value.errors()
    assert form in item["msg"]
    assert "pattern" not in item["msg"]
