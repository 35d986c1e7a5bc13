"""``deepinfer check``: the memory of the configured checkpoint."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from deepinfer_core.cli.memory_check import configured_needs
from deepinfer_core.config import load_settings

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_the_sum_of_memory_is_shown_and_given_as_data(
    deepinfer: Run, byte_checkpoint: Path
) -> None:
    chosen = ("--set", f"model.path={byte_checkpoint}", "--set", "engine.max_num_seqs=2")
    done = deepinfer("check", *chosen, "--json")
    assert done.returncode == 0
    memory = json.loads(done.stdout)["memory"]
    # Two sequences of 2048 tokens and the dummy; two slots, a fifth more, the dummy and four
    # snapshots for each sequence.
    assert (memory["num_blocks"], memory["num_slots"]) == (2 * 16 + 1, 3 + 8)
    blocks_bytes = memory["num_blocks"] * memory["block_bytes"]
    states_bytes = memory["num_slots"] * memory["state_bytes"]
    fixed_bytes = memory["weights_bytes"] + memory["recordings_bytes"]
    assert memory["total_bytes"] == fixed_bytes + blocks_bytes + states_bytes
    shown = deepinfer("check", *chosen).stdout
    assert f"{memory['total_bytes']:,}" in shown
    assert f"{memory['recordings_bytes']:,}" in shown


def test_steps_that_are_not_recorded_are_no_line_of_the_sum(
    deepinfer: Run, byte_checkpoint: Path
) -> None:
    chosen = ("--set", f"model.path={byte_checkpoint}", "--set", "engine.graphs=false")
    assert "recorded steps" not in deepinfer("check", *chosen).stdout


def test_a_checkpoint_that_does_not_fit_is_a_problem(deepinfer: Run, byte_checkpoint: Path) -> None:
    limits = ("--set", f"model.path={byte_checkpoint}", "--set", "engine.num_blocks=5")
    done = deepinfer("check", *limits)
    assert done.returncode == 2
    assert "one request of 2048 tokens needs 16 blocks" in done.stderr


def test_a_missing_checkpoint_is_a_problem(deepinfer: Run, tmp_path: Path) -> None:
    done = deepinfer("check", "--set", f"model.path={tmp_path / 'no'}")
    assert done.returncode == 2
    assert "no does not exist" in done.stderr


def test_check_refuses_what_loading_would_refuse(deepinfer: Run, byte_checkpoint: Path) -> None:
    chosen = ("--set", f"model.path={byte_checkpoint}")
    done = deepinfer("check", *chosen, "--set", "engine.decode_token_blacklist=288")
    assert done.returncode == 2
    assert "engine.decode_token_blacklist names token 288" in done.stderr


def test_no_weight_is_read(deepinfer: Run, byte_checkpoint: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_bytes((byte_checkpoint / "config.json").read_bytes())
    assert deepinfer("check", "--set", f"model.path={bare}").returncode == 0


@pytest.mark.parametrize("is_there", [True, False])
def test_probes_learn_about_the_checkpoint_if_there_is_one(
    byte_checkpoint: Path, tmp_path: Path, is_there: bool
) -> None:
    path = byte_checkpoint if is_there else tmp_path
    needs = configured_needs(load_settings(None, [f"model.path={path}"], environ={}))
    assert (needs.head_width if needs else None) == (64 if is_there else None)


def test_check_says_what_is_proven_at_load(deepinfer: Run, byte_checkpoint: Path) -> None:
    chosen = ("--set", f"model.path={byte_checkpoint}", "--set", "strict=batch_invariant")
    done = deepinfer("check", *chosen)
    assert done.returncode == 0
    assert "batch_invariant  every component promises it, and proves it when the engine loads" in (
        done.stdout
    )
    data = json.loads(deepinfer("check", *chosen, "--json").stdout)
    assert data["strict"] == {
        "asked": ["batch_invariant"],
        "proven_at_load": ["batch_invariant"],
    }


def test_check_says_nothing_of_strict_where_nothing_is_asked(
    deepinfer: Run, byte_checkpoint: Path
) -> None:
    shown = deepinfer("check", "--set", f"model.path={byte_checkpoint}").stdout
    assert "strict" not in shown
    assert "\n\n\n" not in shown
