"""The output: whole lines only, a lock, and nothing of anybody else's is touched."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.batch.output_file import SYNC_PERIOD_S, OutputFile
from deepinfer_core.errors import ConfigError


def answer(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"batch_req_{number}",
        "custom_id": "é世",
        "response": None,
        "error": None,
    } | changes


def test_answers_are_found_again(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    body = {"body": {"system_fingerprint": "fp_1"}}
    with OutputFile(path) as file:
        file.append(answer(1, response=body))
        file.append(answer(2, error={"code": "x"}))
    with OutputFile(path) as file:
        assert file.answered == {"batch_req_1", "batch_req_2"}
        assert (file.failed, file.fingerprints) == (1, {"fp_1"})
    assert [json.loads(line)["custom_id"] for line in path.read_text().splitlines()] == ["é世"] * 2


def test_an_answer_is_in_the_file_as_soon_as_it_is_appended(tmp_path: Path) -> None:
    with OutputFile(tmp_path / "out.jsonl") as file:
        file.append(answer(1))
        assert (tmp_path / "out.jsonl").read_bytes().endswith(b"}\n")


def test_a_torn_last_line_is_cut_off_wherever_it_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with OutputFile(path) as file:
        file.append(answer(1))
        first = path.read_bytes()
        file.append(answer(2))
    whole = path.read_bytes()
    for size in range(len(first), len(whole)):
        path.write_bytes(whole[:size])
        with OutputFile(path) as file:
            assert file.answered == {"batch_req_1"}
            assert path.read_bytes() == first


def test_zeros_that_a_power_failure_left_are_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"\0" * 100)
    with OutputFile(path):
        assert path.read_bytes() == b""


def test_half_a_line_that_an_interrupt_left_is_cut_off_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "out.jsonl", os.write

    def torn(descriptor: int, content: Any) -> int:
        write(descriptor, bytes(content)[:20])
        raise KeyboardInterrupt

    file = OutputFile(path)
    file.append(answer(1))
    whole = path.read_bytes()
    monkeypatch.setattr(os, "write", torn)
    with pytest.raises(KeyboardInterrupt), file:
        file.append(answer(2))
    assert path.read_bytes() == whole


def test_a_write_in_parts_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, content: write(fd, bytes(content)[:7]))
    with OutputFile(tmp_path / "out.jsonl") as file:
        file.append(answer(1))
    assert json.loads((tmp_path / "out.jsonl").read_text()) == answer(1)


@pytest.mark.parametrize(
    "content",
    [
        b"notes without a line feed",
        b"notes\n",
        b'{"custom_id": "a", "body": {}}\n',
        b'{"id": "batch_req_1"}\n',
        b'{"id": 1, "response": null, "error": null}\n',
        b'{"id": "other_1", "response": null, "error": null}\n',
        b"[]\n",
        b"\n",
        b'{"id": "batch_r-other',
    ],
)
def test_a_file_of_something_else_is_refused_and_not_changed(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=":1 is no answer of a batch"):
        OutputFile(path)
    assert path.read_bytes() == content


def test_an_answer_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text(2 * (json.dumps(answer(1)) + "\n"))
    with pytest.raises(ConfigError, match=":2 answers a request that was answered before"):
        OutputFile(path)


def test_a_second_run_is_kept_out_until_the_first_ends(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with OutputFile(path), pytest.raises(ConfigError, match="another run writes to"):
        OutputFile(path)
    OutputFile(path).close()


def test_a_refused_file_is_unlocked(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("notes\n")
    for _ in range(2):
        with pytest.raises(ConfigError, match="is no answer"):
            OutputFile(path)


@pytest.mark.parametrize("name", [".", "absent/out.jsonl", "/dev/null"])
def test_an_output_that_cannot_be_a_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError):
        OutputFile(tmp_path / name)


def test_answers_reach_the_disk_once_a_period_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[int] = []
    now_s = 0.0
    file = OutputFile(tmp_path / "out.jsonl", clock_s=lambda: now_s)
    monkeypatch.setattr(os, "fsync", syncs.append)
    counts = []
    for number in range(4):
        file.append(answer(number))
        counts.append(len(syncs))
        now_s += SYNC_PERIOD_S / 2
    file.close()
    assert [*counts, len(syncs)] == [0, 0, 1, 1, 2]


def test_half_a_surrogate_pair_is_written_as_the_escape_of_json(tmp_path: Path) -> None:
    with OutputFile(tmp_path / "out.jsonl") as file:
        file.append(answer(1, custom_id="\ud800"))
    assert json.loads((tmp_path / "out.jsonl").read_bytes())["custom_id"] == "\ud800"
