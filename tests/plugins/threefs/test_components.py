"""Are the stores found by entry points, given their options and built?"""

from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.config import load_settings
from deepinfer_core.config.resolution import resolve_components
from deepinfer_core.errors import NoUsableComponent
from deepinfer_core.interfaces.kv_store import KvStore
from deepinfer_core.plugin.resolved import load
from deepinfer_core.testing.contracts.kv_store_suite import block, item, key
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER
from deepinfer_threefs.options import PosixOptions, UsrbioOptions
from deepinfer_threefs.store import ThreefsStore
from pydantic import ValidationError

USE = ("components.kv_store.use=threefs.posix",)


def resolved(*overrides: str) -> Any:
    return resolve_components(load_settings(None, (*USE, *overrides), environ={}))


def test_a_store_is_built_with_its_options_and_keeps_blocks(tmp_path: Path) -> None:
    options = {
        "folder": f"{tmp_path}/store",
        "capacity_bytes": "1048576",
        "lane": "seven",
        "segment_bytes": "65536",
        "durable": "true",
        "refresh_s": "0",
    }
    overrides = [f"components.kv_store.options.{name}={value}" for name, value in options.items()]
    store = load(resolved(*overrides).require(), "kv_store")
    assert isinstance(store, KvStore)
    assert isinstance(store, ThreefsStore)
    assert not (tmp_path / "store").exists()
    store.open([BLOCKS])
    assert store.report().capacity_bytes == 1 << 20
    assert store.capabilities.is_remote
    store.store("blocks", [item(number) for number in range(20)], deadline_s=FOREVER)
    files = sorted((tmp_path / "store/blocks/seven").glob("*.seg"))
    # A first page, records, and a seal behind those of the file that is full.
    assert [file.stat().st_size for file in files] == [(1 + 15 + 1) * 4096, (1 + 5) * 4096]
    destination = bytearray(BLOCKS.block_bytes)
    store.load("blocks", [key(3)], [destination], deadline_s=FOREVER)
    assert destination == block(3)
    store.close()


def test_a_store_needs_a_folder() -> None:
    (problem,) = resolved().report.problems
    assert "components.kv_store.options" in str(problem)
    assert "folder" in str(problem)


def test_rings_are_not_taken_where_there_are_none(tmp_path: Path) -> None:
    overrides = ("components.kv_store.use=threefs.usrbio",)
    with pytest.raises(NoUsableComponent, match="needs the module hf3fs_py_usrbio, found none"):
        resolved(*overrides, f"components.kv_store.options.folder={tmp_path}").require()


@pytest.mark.parametrize(
    "option",
    [
        {"lane": "../x"},
        {"lane": ""},
        {"segment_bytes": 4095},
        {"refresh_s": -1.0},
        {"refresh_s": float("inf")},
        {"folder": ""},
        {"ring_entries": 0},
        {"rings": 0},
        {"retries": -1},
        {"chunk_bytes": 5000},
        {"nothing": 1},
    ],
)
def test_options_that_no_store_can_keep_are_refused(option: dict[str, Any]) -> None:
    UsrbioOptions.model_validate({"folder": "/mnt"})
    with pytest.raises(ValidationError):
        UsrbioOptions.model_validate({"folder": "/mnt", **option})


@pytest.mark.parametrize("lane", ["", "A B", "x" * 33])
def test_a_lane_that_is_no_folder_says_which_form_is_wanted(lane: str) -> None:
    with pytest.raises(ValidationError, match="expected 1 to 32 of the characters a-z, 0-9 and _"):
        PosixOptions(folder="/kv", lane=lane)
