"""Is a report that was judged told from a finding, and a judgement that is not needed from one?"""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from deepinfer_core.testing import race_patterns
from deepinfer_core.testing.judged_races import JudgedRace, judge, read_judged, standing
from deepinfer_core.testing.race_patterns import WAYS, heard_of
from deepinfer_core.testing.trial_findings import Checked, read_words, stale

JUDGED = JudgedRace(
    name="known",
    kernel="fast/kernel",
    reads=r"taker\(.*\)",
    writes=r"giver\(.*\)",
    reports=2,
    way="first_lane_arrives",
    contrast="every_lane_arrives",
    reason="a chain",
)
READ = "Error: Race reported between Read access at taker(int *)+0x1a90 in k.cu:600"
WRITE = "and Write access at giver(int, float &)+0x7500 in k.cu:512 [224 hazards]"
OTHER = "and Write access at stranger(int)+0x40 in k.cu:9 [1 hazards]"
KNOWN = (READ, WRITE, WRITE)


def test_a_report_is_covered_if_each_access_is() -> None:
    assert JUDGED.covers(KNOWN)
    assert not JUDGED.covers((*KNOWN, OTHER))
    assert not JUDGED.covers((READ,))
    assert not JUDGED.covers(("Invalid __shared__ read of size 4 bytes",))
    assert not JUDGED.covers((READ.replace("taker", "giver"), WRITE))
    assert not JUDGED.covers((READ, WRITE, "and Write access at somewhere in k.cu:9"))


def test_more_reports_than_were_judged_are_findings() -> None:
    assert judge("fast/kernel", [KNOWN, KNOWN], [JUDGED]) == (["known"], [])
    assert judge("fast/kernel", [KNOWN, KNOWN, KNOWN], [JUDGED]) == (["known"], [KNOWN])


def test_reports_of_another_kernel_are_findings() -> None:
    assert judge("kernel", [KNOWN], [JUDGED]) == ([], [KNOWN])


def test_a_judgement_stands_where_the_tool_follows_the_one_way_and_not_the_other() -> None:
    heard = {"first_lane_arrives": "reported", "every_lane_arrives": "silent"}
    assert standing([JUDGED], heard) == (JUDGED,)
    for name, words in (
        ("first_lane_arrives", "silent"),
        ("first_lane_arrives", "not run"),
        ("every_lane_arrives", "reported"),
        ("every_lane_arrives", "wrong"),
    ):
        assert standing([JUDGED], heard | {name: words}) == ()
    assert standing([JUDGED], {}) == ()


def said(*reports: tuple[str, ...]) -> str:
    lines = [f"========= {line}" for report in reports for line in (*report, "")]
    name = "fast/kernel[a]"
    return "\n".join([f"trial begins: {name}", *lines, f"trial right: {name}"])


def test_a_trial_is_judged_if_nothing_else_was_said_of_it() -> None:
    names = ["fast/kernel[a]"]
    found = read_words(said(KNOWN), names, [JUDGED])
    assert (found.clean, found.judged, found.findings) == ([], {names[0]: ["known"]}, {})
    found = read_words(said(KNOWN, (READ, OTHER)), names, [JUDGED])
    assert (found.judged, found.findings) == ({}, {names[0]: [READ, OTHER]})
    assert read_words(said(KNOWN), names).findings == {names[0]: list(KNOWN)}


def test_a_judgement_is_stale_if_all_trials_of_its_kernel_do_without() -> None:
    names = ["fast/kernel[a]", "fast/kernel[b]", "kernel[a]"]
    clean = Checked(clean=names[:2])
    assert stale({"racecheck": clean}, [JUDGED], names) == ["known"]
    assert stale({"memcheck": clean}, [JUDGED], names) == []
    needed = Checked(clean=names[:1], judged={names[1]: ["known"]})
    assert stale({"racecheck": needed}, [JUDGED], names) == []
    unfinished = Checked(clean=names[:1], unfinished=names[1:])
    assert stale({"racecheck": unfinished}, [JUDGED], names) == []
    assert stale({"racecheck": clean}, [JUDGED], ["another[case]"]) == []


def test_an_entry_has_all_fields_and_a_known_way(tmp_path: Path) -> None:
    path = tmp_path / "judged.json"
    assert read_judged(None) == ()
    path.write_text(json.dumps([asdict(JUDGED)]))
    assert read_judged(path) == (JUDGED,)
    for wrong in (asdict(replace(JUDGED, way="by_magic")), {"name": "known"}):
        path.write_text(json.dumps([wrong]))
        with pytest.raises(ValueError, match="known is no judgement"):
            read_judged(path)


def stand_in(folder: Path, program: str) -> Path:
    path = folder / "tool"
    path.write_text(f"#!/bin/sh\n{program}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("prints", "heard"),
    [
        ("echo $6: 0 wrong", "silent"),
        ("echo $6: 0 wrong; echo '========= Error: Race reported'", "reported"),
        ("echo $6: 3 wrong; exit 1", "wrong"),
        ("exit 3", "not run"),
    ],
)
def test_the_tool_is_asked_about_a_way_by_its_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, prints: str, heard: str
) -> None:
    monkeypatch.setattr(race_patterns, "_program", lambda folder: tmp_path / "patterns")
    tool = stand_in(tmp_path, prints)
    assert heard_of(str(tool), ["all_meet", "all_meet"]) == {"all_meet": heard}
    assert heard_of(str(tool), []) == {}


def test_without_a_compiler_no_way_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race_patterns, "_program", lambda folder: None)
    assert heard_of("tool", ["all_meet"]) == {"all_meet": "not run"}


def test_every_way_has_a_kernel_of_its_name() -> None:
    text = Path(race_patterns.__file__).with_suffix(".cu").read_text(encoding="utf-8")
    assert all(f'{{"{name}", {name}}},' in text for name in WAYS)
