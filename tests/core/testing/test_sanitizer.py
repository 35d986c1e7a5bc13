"""Are the findings of compute-sanitizer told apart, and given to the trial that they belong to?"""

import json
import stat
import sys
from pathlib import Path

import pytest
from deepinfer_core.testing import sanitize
from deepinfer_core.testing.sanitize import is_clean, main, summary
from deepinfer_core.testing.sanitizer import BEGIN, findings, refusal, run_checked
from deepinfer_core.testing.trial_findings import Checked, read_words

HEAD = "========= COMPUTE-SANITIZER"
END = "========= ERROR SUMMARY: 1 error"
ERROR = """========= Invalid __global__ write of size 4 bytes
=========     at main_kernel+0x10
========= """


def words(*lines: str) -> str:
    return "\n".join(lines)


def begun(name: str) -> str:
    return BEGIN + name


def test_a_clean_run_has_no_findings() -> None:
    assert findings(words(HEAD, begun("a"), "trial right: a", "========= ERROR SUMMARY: 0")) == []


def test_a_finding_belongs_to_the_trial_that_began_last() -> None:
    (found,) = findings(words(HEAD, begun("a"), begun("b"), ERROR, begun("c"), END))
    assert found.trial == "b"
    assert found.words == ("Invalid __global__ write of size 4 bytes", "at main_kernel+0x10")


def test_two_findings_of_a_trial_are_two() -> None:
    assert [one.trial for one in findings(words(begun("a"), ERROR, ERROR))] == ["a", "a"]


def test_a_finding_before_any_trial_has_no_name() -> None:
    assert [one.trial for one in findings(ERROR)] == [""]


def test_each_trial_has_one_end() -> None:
    said = words(
        begun("a"), "trial right: a",
        begun("b"), ERROR, "trial right: b",
        begun("c"), "trial wrong: c: out_TD: 7 elements are off",
        begun("d"),
    )  # fmt: skip
    found = read_words(said, ["a", "b", "c", "d", "e"])
    assert found.clean == ["a"]
    assert list(found.findings) == ["b"]
    assert found.wrong == {"c": "out_TD: 7 elements are off"}
    assert found.unfinished == ["d", "e"]


def test_where_the_tool_kept_findings_back_no_other_trial_is_clean() -> None:
    """It stops to print at some number, of whatever trial."""
    kept = "========= ERROR SUMMARY: 3 errors were not printed. Use --print-limit option"
    said = words(begun("a"), "trial right: a", begun("b"), ERROR, "trial right: b", kept)
    found = read_words(said, ["a", "b"])
    assert (found.clean, found.unfinished, list(found.findings)) == ([], ["a"], ["b"])


@pytest.fixture
def tool(tmp_path: Path) -> str:
    """Stands for compute-sanitizer: runs what comes behind its four options."""
    path = tmp_path / "compute-sanitizer"
    path.write_text('#!/bin/sh\nshift 4\nexec "$@"\n', encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_program_is_run_without_memory_that_torch_keeps(tool: str) -> None:
    ask = "import os; print(os.environ['PYTORCH_NO_CUDA_MEMORY_CACHING'])"
    assert run_checked(tool, "memcheck", (sys.executable, "-c", ask), limit_s=60) == (0, "1\n")


def test_a_program_that_takes_too_long_is_ended_with_its_children(tool: str) -> None:
    """Else they would hold the pipe, and be read to their end."""
    program = ("sh", "-c", "echo here; (sleep 4; echo later) & wait")
    assert run_checked(tool, "memcheck", program, limit_s=1) == (None, "here\n")


def test_a_tool_that_refuses_the_device_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "compute-sanitizer"
    path.write_text("#!/bin/sh\necho '========= Error: Device not supported'\nexit 1\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    assert "Device not supported" in refusal(str(path), "memcheck", sys.executable, limit_s=20)


def report(**changes: object) -> dict[str, object]:
    whole = {"clean": ["a"], "judged": {}, "findings": {}, "wrong": {}, "unfinished": []}
    tools = {"memcheck": whole | changes}
    empty = {"refused": {}, "not_compiled": {}, "ways": {}, "stale": []}
    return {"trials": 1, "tools": tools, **empty}


def test_a_report_is_clean_if_everything_was_run_and_nothing_found() -> None:
    assert is_clean(report())
    assert not is_clean(report(clean=[], unfinished=["a"]))
    assert not is_clean(report(clean=[], findings={"a": ["x"]}))
    assert not is_clean(report() | {"refused": {"racecheck": "no"}})
    assert not is_clean(report() | {"not_compiled": {"b": "late"}})
    assert is_clean(report(clean=[], judged={"a": ["known"]}))
    assert not is_clean(report() | {"stale": ["known"]})


def test_the_summary_shows_each_finding() -> None:
    assert "a: Invalid | at" in summary(report(clean=[], findings={"a": ["Invalid", "at"]}))
    assert "a: judged: known" in summary(report(clean=[], judged={"a": ["known"]}))
    assert "all_meet: silent" in summary(report() | {"ways": {"all_meet": "silent"}})
    assert "known is needed no more" in summary(report() | {"stale": ["known"]})


def test_without_the_tool_nothing_is_said_to_be_clean(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sanitize, "find_sanitizer", lambda: None)
    assert main(["nothing:here", "--out", str(tmp_path / "a.json")]) == 2
    assert "there is no compute-sanitizer" in capsys.readouterr().out
    assert not (tmp_path / "a.json").exists()


def test_the_whole_report_is_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tool: str
) -> None:
    found = report()
    monkeypatch.setattr(sanitize, "find_sanitizer", lambda: tool)
    monkeypatch.setattr(sanitize, "check", lambda args, sanitizer, cache: found)
    assert main(["nothing:here", "--out", str(tmp_path / "a.json")]) == 0
    assert json.loads((tmp_path / "a.json").read_text()) == found


def test_results_of_two_runs_are_one() -> None:
    found = Checked(clean=["a"])
    found.add(Checked(clean=["b"], wrong={"c": "x"}))
    assert found == Checked(clean=["a", "b"], wrong={"c": "x"})
