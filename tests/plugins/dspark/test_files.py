"""Records, tables and step times: read as written, and refused where they do not fit."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from deepinfer_core.errors import ConfigError
from deepinfer_core.interfaces.draft_planner import DraftOutcome
from deepinfer_core.schedule.speculation_costs import CostCurve
from deepinfer_core.testing.events import captured_events
from deepinfer_dspark.calibration import CalibrationTable, read_table, write_table
from deepinfer_dspark.measured_files import MeasuredFiles
from deepinfer_dspark.measuring import MeasuredCosts
from deepinfer_dspark.recording import BlockRecorder, RecordHeader, read_records

HEADER = RecordHeader(checkpoint="abc", rule="match", temperatures=(1.0, 2.0))
OUTCOMES = (
    DraftOutcome(2, 1, raw=(0.25, -1.5)),
    DraftOutcome(0, 0, raw=(1.0, 1.0)),
    DraftOutcome(1, 1, raw=(3.0, 0.5)),
)


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    BlockRecorder(tmp_path / "record", HEADER).add(OUTCOMES)
    header, records = read_records(tmp_path / "record")
    assert header == HEADER
    assert records.logit_Bn.tolist() == [[0.25, -1.5], [3.0, 0.5]]
    assert (records.verified_B.tolist(), records.accepted_B.tolist()) == ([2, 1], [1, 1])


def test_another_run_of_the_same_appends(tmp_path: Path) -> None:
    for _ in range(2):
        BlockRecorder(tmp_path / "record", HEADER).add(OUTCOMES)
    assert len(read_records(tmp_path / "record")[1].verified_B) == 4


def test_a_file_without_blocks_has_no_blocks(tmp_path: Path) -> None:
    BlockRecorder(tmp_path / "record", HEADER).add(())
    assert read_records(tmp_path / "record")[1].logit_Bn.shape == (0, 2)


@pytest.mark.parametrize(
    "other", [{"checkpoint": "abd"}, {"rule": "ratio"}, {"temperatures": (1.0, 2.5)}]
)
def test_blocks_of_something_else_are_not_mixed_in(
    tmp_path: Path, other: dict[str, object]
) -> None:
    BlockRecorder(tmp_path / "record", HEADER)
    before = (tmp_path / "record").read_bytes()
    with pytest.raises(ConfigError, match="asked to record"):
        BlockRecorder(tmp_path / "record", replace(HEADER, **other))
    assert (tmp_path / "record").read_bytes() == before


def test_a_file_of_another_kind_is_not_appended_to(tmp_path: Path) -> None:
    (tmp_path / "record").write_text("my notes\n")
    with pytest.raises(ConfigError, match="is no record of drafts"):
        BlockRecorder(tmp_path / "record", HEADER)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"asked to record in .*nowhere"):
        BlockRecorder(tmp_path / "nowhere" / "record", HEADER)


@pytest.mark.parametrize(
    "line", ["[2, 1, 0.5", "[2, 1, 0.5]", "[3, 1, 0.5, 0.5]", "[1, 2, 0.5, 0.5]", '["a"]', "3",
             "[1.5, 1, 0.5, 0.5]", '[2, 1, "x", 0.5]', "", '[2, 1, "1", 0.5]', "[2, true, 1, 1]",
             "[2, 1, NaN, 0.5]", "[2, 1, 0.5, -Infinity]", f"[2, 1, 0.5, {10**400}]",
             "[" * 100_000],
    ids=range(15),
)  # fmt: skip
def test_a_line_that_is_no_block_is_named(tmp_path: Path, line: str) -> None:
    BlockRecorder(tmp_path / "record", HEADER).add(OUTCOMES)
    with (tmp_path / "record").open("a") as file:
        file.write(f"{line}\n[2, 2, 0.5, 0.5]\n")
    with pytest.raises(ConfigError, match="record line 4 is no block of 2 drafts"):
        read_records(tmp_path / "record")


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"format": "deepinfer-dspark record 0"}', "[1]", "[" * 100_000],
    ids=range(5),
)
def test_what_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "record").write_text(text)
    with pytest.raises(ConfigError, match="is no record of drafts"):
        read_records(tmp_path / "record")


@pytest.mark.parametrize(
    "other",
    [{"temperatures": []}, {"temperatures": [1, 0]}, {"temperatures": [1, float("nan")]},
     {"temperatures": [1, 10**400]}, {"temperatures": ["1", "2"]}, {"checkpoint": 3},
     {"rule": "most"}],
    ids=range(7),
)  # fmt: skip
def test_a_first_line_that_says_nothing_of_use_is_refused(
    tmp_path: Path, other: dict[str, object]
) -> None:
    BlockRecorder(tmp_path / "record", HEADER)
    line = json.loads((tmp_path / "record").read_text())
    (tmp_path / "record").write_text(json.dumps(line | other) + "\n")
    with pytest.raises(ConfigError, match="is no record of drafts"):
        read_records(tmp_path / "record")


@pytest.mark.parametrize("device", ["/dev/full", "/dev/null"])
def test_a_device_is_neither_recorded_in_nor_read(device: str) -> None:
    with pytest.raises(ConfigError, match=f"asked to record in {device}, found that it is no ord"):
        BlockRecorder(Path(device), HEADER)
    with pytest.raises(ConfigError, match=f"the records in {device}, found that it is no ordinary"):
        read_records(Path(device))
    with pytest.raises(ConfigError, match=f"calibration in {device}, found .*no ordinary file"):
        read_table(Path(device), **USE)


@pytest.mark.parametrize("content", [b"\xff\xfe\n", b"{" * 1_000_000], ids=["bytes", "no end"])
def test_a_file_that_may_have_no_first_line_is_not_appended_to(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "record").write_bytes(content)
    with pytest.raises(ConfigError, match=str(tmp_path / "record")):
        BlockRecorder(tmp_path / "record", HEADER)
    assert (tmp_path / "record").read_bytes() == content


def test_recording_ends_once_and_for_all_where_the_disk_is_full(tmp_path: Path) -> None:
    path = tmp_path / "record"
    recorder = BlockRecorder(path, HEADER)
    recorder.add(OUTCOMES)
    path.rename(tmp_path / "kept")
    path.symlink_to("/dev/full")
    with captured_events() as events:
        recorder.add(OUTCOMES)
        path.unlink()
        recorder.add(OUTCOMES)
    assert [event["event"] for event in events] == ["draft_record.ended"]
    assert events[0]["written"] == 2
    assert "No space left" in str(events[0]["reason"])
    assert (recorder.written, recorder.lost) == (2, 4)
    assert not path.exists()
    assert len(read_records(tmp_path / "kept")[1].verified_B) == 2


def test_a_record_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"asked for the records in .*record"):
        read_records(tmp_path / "record")


TABLE = CalibrationTable(
    checkpoint="abc",
    rule="match",
    temperatures=(1.5, 0.5),
    blocks=(200, 100),
    error_before=(0.1, 0.2),
    error_after=(0.01, 0.02),
)
USE = {"checkpoint": "abc", "drafts": 2, "rule": "match"}


def test_a_table_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write_table(tmp_path / "table.json", TABLE)
    assert read_table(tmp_path / "table.json", **USE) == TABLE


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"checkpoint": "abd"}, "asked for a calibration of checkpoint abd, found one of"),
        ({"drafts": 3}, "asked for a calibration for drafts 3, found one for drafts 2"),
        ({"rule": "ratio"}, "accepted by rule ratio, found one of drafts accepted by rule match"),
    ],
)
def test_a_table_for_something_else_is_refused(
    tmp_path: Path, other: dict[str, object], message: str
) -> None:
    write_table(tmp_path / "table.json", TABLE)
    with pytest.raises(ConfigError, match=message):
        read_table(tmp_path / "table.json", **(USE | other))


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"format": "x"}', '{"format": "deepinfer-dspark calibration 1"}', "[" * 100_000],
    ids=range(5),
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "table.json").write_text(text)
    with pytest.raises(ConfigError, match="asked for the calibration in"):
        read_table(tmp_path / "table.json", **USE)


@pytest.mark.parametrize("temperature", [0.0, -1.0, 1e-320, 1e39])
def test_a_temperature_that_divides_nothing_is_refused(tmp_path: Path, temperature: float) -> None:
    write_table(tmp_path / "table.json", replace(TABLE, temperatures=(1.0, temperature)))
    with pytest.raises(ConfigError, match="a temperature that is not positive"):
        read_table(tmp_path / "table.json", **USE)


@pytest.mark.parametrize("field", ["temperatures", "blocks", "error_before", "error_after"])
@pytest.mark.parametrize(
    "value", ["1", True, None, float("inf"), float("nan"), 10**400, 10**5000, "1.5"], ids=range(8)
)
def test_what_is_no_finite_number_is_refused_in_a_table(
    tmp_path: Path, field: str, value: object
) -> None:
    write_table(tmp_path / "table.json", TABLE)
    text = json.dumps(json.loads((tmp_path / "table.json").read_text()) | {field: [1, "HERE"]})
    written = "1" * 5001 if value == 10**5000 else json.dumps(value)
    (tmp_path / "table.json").write_text(text.replace('"HERE"', written))
    with pytest.raises(ConfigError, match="asked for the calibration in"):
        read_table(tmp_path / "table.json", **USE)


def test_a_table_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"asked to write .*nowhere"):
        write_table(tmp_path / "nowhere" / "table.json", TABLE)


COSTS = MeasuredCosts(
    steps=CostCurve(rows=(1, 2), milliseconds=(1.5, 2.5)),
    rounds=CostCurve(rows=(1,), milliseconds=(0.5,)),
)
KEY = {"engine": "x", "drafts": 5, "rows": (1, 2)}


class Clock:
    """Seconds that a test moves on."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_step_times_are_found_again(tmp_path: Path) -> None:
    MeasuredFiles(tmp_path / "new", 60).keep(KEY, COSTS)
    assert MeasuredFiles(tmp_path / "new", 60).find(KEY) == COSTS


@pytest.mark.parametrize("other", [{"engine": "y"}, {"drafts": 4}, {"rows": (1, 3)}])
def test_step_times_of_something_else_are_not_found(
    tmp_path: Path, other: dict[str, object]
) -> None:
    files = MeasuredFiles(tmp_path, 60)
    files.keep(KEY, COSTS)
    assert files.find(KEY | other) is None


@pytest.mark.parametrize(("age_s", "is_found"), [(0, True), (59, True), (60, False), (-1, False)])
def test_step_times_are_used_until_they_are_too_old(
    tmp_path: Path, age_s: float, is_found: bool
) -> None:
    clock = Clock()
    files = MeasuredFiles(tmp_path, 60, clock)
    files.keep(KEY, COSTS)
    clock.now_s += age_s
    assert (files.find(KEY) == COSTS) is is_found


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"format": "deepinfer-dspark step times 2"}', "[" * 100_000],
    ids=range(5),
)
def test_damaged_step_times_count_as_not_there(tmp_path: Path, text: str) -> None:
    files = MeasuredFiles(tmp_path, 60)
    files.keep(KEY, COSTS)
    (path,) = tmp_path.iterdir()
    path.write_text(text)
    with captured_events() as events:
        assert files.find(KEY) is None
    assert [event["event"] for event in events] == ["step_times.not_read"]


def test_step_times_under_a_digest_that_collides_are_not_used(tmp_path: Path) -> None:
    files = MeasuredFiles(tmp_path, 60)
    files.keep(KEY, COSTS)
    (path,) = tmp_path.iterdir()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"key": {"engine": "y"}}))
    assert files.find(KEY) is None


def test_step_times_that_are_too_old_are_removed_when_others_are_kept(tmp_path: Path) -> None:
    MeasuredFiles(tmp_path, 60).keep(KEY, COSTS)
    (tmp_path / "notes").write_text("mine")
    (old,) = tmp_path.glob("step-times-*")
    long_ago_s = old.stat().st_mtime - 61
    os.utime(old, (long_ago_s, long_ago_s))
    MeasuredFiles(tmp_path, 60).keep(KEY | {"drafts": 4}, COSTS)
    names = {path.name for path in tmp_path.iterdir()}
    assert old.name not in names
    assert len(names) == 2


def test_a_folder_that_cannot_be_written_costs_nothing_but_the_measurement(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    files = MeasuredFiles(tmp_path / "file", 60)
    with captured_events() as events:
        files.keep(KEY, COSTS)
    assert [event["event"] for event in events] == ["step_times.not_kept"]
