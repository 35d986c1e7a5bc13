"""From an engine that records to a table that it uses: the commands as users give them."""

import json
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.cli import main
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import ConfigError
from deepinfer_dspark.recording import read_records

TOKENS = 40
PROMPTS = [[0, 20 + n] for n in range(4)]


def engine(checkpoint: Path, **options: Any) -> LLM:
    drafter = {"use": "dspark.block", "options": options}
    return LLM(checkpoint, threads=1, components={"drafter": drafter})


@pytest.fixture(scope="module")
def record(byte_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What became of the drafts of four answers."""
    file = tmp_path_factory.mktemp("record") / "record.jsonl"
    params = SamplingParams(temperature=1, max_tokens=TOKENS, ignore_eos=True, seed=1)
    with engine(byte_checkpoint, record=file) as llm:
        llm.generate(prompt_token_ids=PROMPTS, sampling_params=params)
    return file


def test_an_engine_records_what_became_of_its_drafts(record: Path) -> None:
    header, records = read_records(record)
    assert header.rule == "match"
    assert len(records.verified_B) >= 100
    # Every step emits its accepted drafts and one token, the end of an answer cuts some off; the
    # first token of each answer is drawn by the step of its prompt.
    emitted = int((records.accepted_B + 1).sum())
    assert emitted >= len(PROMPTS) * (TOKENS - 4)


def test_a_table_is_fitted_and_used(
    record: Path, byte_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "table.json"
    assert main(["calibrate", str(record), "--out", str(table), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    written = json.loads(table.read_text())
    assert written == {"format": "deepinfer-dspark calibration 1", **shown}
    assert len(shown["temperatures"]) == 5
    again = tmp_path / "again.jsonl"
    with engine(byte_checkpoint, calibration=table, record=again) as llm:
        llm.generate(prompt_token_ids=PROMPTS[:1], sampling_params=SamplingParams(max_tokens=8))
    assert read_records(again)[0].temperatures == tuple(shown["temperatures"])


def test_the_table_is_printed_for_people(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", str(record), "--out", str(tmp_path / "table.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "draft  blocks  temperature  error before  error after"
    assert len(lines) == 6


def test_a_table_of_another_checkpoint_stops_the_start(
    record: Path, byte_checkpoint: Path, tmp_path: Path
) -> None:
    table = tmp_path / "table.json"
    main(["calibrate", str(record), "--out", str(table)])
    table.write_text(json.dumps(json.loads(table.read_text()) | {"checkpoint": "another"}))
    with pytest.raises(ConfigError, match="asked for a calibration of checkpoint"):
        engine(byte_checkpoint, calibration=table)


def test_too_few_blocks_are_refused(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("".join(record.read_text().splitlines(keepends=True)[:50]))
    assert main(["calibrate", str(few), "--out", str(tmp_path / "table.json")]) == 2
    assert "fewer than the 100 that a temperature takes" in capsys.readouterr().err
