"""``deepinfer check``: does it find what an engine's store would be refused for?"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest
from deepinfer_core.cli import store_check
from deepinfer_core.stores.disk.index import AGE_STEP_S
from deepinfer_core.stores.disk.store import DiskStore
from deepinfer_core.stores.retention import Limits

Run = Callable[..., subprocess.CompletedProcess[str]]
CAPACITY = 32 << 20


@pytest.fixture
def check(deepinfer: Run, byte_checkpoint: Path, tmp_path: Path) -> Run:
    """Checks a store on a disk in a folder, with a checkpoint that has no weights."""
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_bytes((byte_checkpoint / "config.json").read_bytes())

    def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        known: dict[str, object] = {"folder": tmp_path / "store", "capacity_bytes": CAPACITY}
        place = "components.kv_store.options"
        chosen = [f"{place}.{name}={value}" for name, value in (known | options).items()]
        chosen += ["components.kv_store.use=core.disk", f"model.path={bare}"]
        return deepinfer("check", *arguments, *(word for one in chosen for word in ("--set", one)))

    return run


def test_a_store_that_opens_is_shown_with_what_it_is_given(check: Run) -> None:
    done = check("--json")
    assert (done.returncode, done.stderr) == (0, "")
    store = json.loads(done.stdout)["store"]
    assert store["component"] == "core.disk"
    assert list(store["block_bytes"]) == ["blocks", "whole_state"]
    assert "core.disk  opens  blocks" in check().stdout


def test_a_folder_that_is_none_is_a_problem(check: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = check(folder=tmp_path / "file")
    assert done.returncode == 2
    assert "is a file, not a folder" in done.stderr
    assert "hint: name a folder" in done.stderr


def test_a_disk_that_is_too_small_is_a_problem(check: Run) -> None:
    done = check(capacity_bytes=1 << 50)
    assert done.returncode == 2
    assert "free" in done.stderr
    assert "lower capacity_bytes" in done.stderr


def test_another_process_that_writes_is_a_problem_until_it_ends(check: Run, tmp_path: Path) -> None:
    limits = Limits(capacity_bytes=CAPACITY, retention_s={"agent": 1.0}, age_step_s=AGE_STEP_S)
    store = DiskStore(tmp_path / "store", limits)
    store.open([])
    done = check()
    assert done.returncode == 2
    assert "another process, or another store of this one, writes" in done.stderr
    store.close()
    assert check().returncode == 0


def test_shared_memory_that_has_no_room_for_a_block_is_a_problem(check: Run) -> None:
    done = check("--set", "engine.kv_store.fetch_bytes=100")
    assert done.returncode == 2
    assert "fetch_bytes" in done.stderr


def test_settings_under_which_a_store_is_of_no_use_are_a_problem(check: Run) -> None:
    done = check("--set", "engine.prefix_cache=false")
    assert done.returncode == 2
    assert "engine.prefix_cache is false" in done.stderr


def test_without_a_checkpoint_the_rest_is_checked(deepinfer: Run, tmp_path: Path) -> None:
    done = deepinfer(
        "check", "--set", "components.kv_store.use=core.memory",
        "--set", f"model.path={tmp_path / 'no'}",
    )  # fmt: skip
    assert "not opened: the checkpoint cannot be read" in done.stdout
    assert done.stderr.count("error: ") == 1


def test_a_part_that_does_not_open_is_a_warning_if_the_store_can_do_without(
    deepinfer: Run, byte_checkpoint: Path, tmp_path: Path
) -> None:
    """Two children of one folder: the second of them cannot write there."""
    folder = f'{{ folder = "{tmp_path / "one"}", capacity_bytes = {CAPACITY} }}'
    child = f'{{ use = "core.disk", options = {folder} }}'
    options = f'{{ data = 1, parity = 1, codec = "numpy", children = [{child}, {child}] }}'
    file = tmp_path / "deepinfer.toml"
    file.write_text(
        f'model.path = "{byte_checkpoint}"\n'
        f'components.kv_store = {{ use = "core.erasure", options = {options} }}\n'
    )
    done = deepinfer("check", "-c", str(file))
    assert done.returncode == 0
    assert "warning: the store opens without some of its parts: child 1 (core.disk)" in done.stderr


def test_a_folder_that_another_version_wrote_is_left_as_it_is(check: Run, tmp_path: Path) -> None:
    assert check().returncode == 0
    with lmdb.Environment(str(tmp_path / "store"), map_size=CAPACITY * 2, max_dbs=8) as old:
        totals = old.open_db(b"totals")
        with old.begin(write=True) as txn:
            txn.put(b"form", b"0", db=totals)
    done = check()
    assert done.returncode == 0
    assert "warning: the store in" in done.stderr
    assert "another version of the software wrote it: serve empties it" in done.stderr
    assert "not opened: the format of another version" in done.stdout
    with lmdb.Environment(str(tmp_path / "store"), map_size=CAPACITY * 2, max_dbs=8) as same:
        totals = same.open_db(b"totals")
        with same.begin() as txn:
            assert txn.get(b"form", db=totals) == b"0"


@pytest.mark.parametrize(
    ("parts", "said"),
    [((), "opens, and tells of a problem: it is hot"), (("one",), "opens without some of its")],
)
def test_only_a_store_that_is_made_of_others_lacks_parts(parts: tuple[str, ...], said: str) -> None:
    assert said in store_check._warning("it is hot", has_parts=bool(parts))
    assert store_check._warning("", has_parts=bool(parts)) == ""
