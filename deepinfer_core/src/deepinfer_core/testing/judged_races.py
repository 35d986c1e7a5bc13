"""Which reports of racecheck were looked into, and found to be no races?

A backend lists them in a JSON file, each with the functions that it names and the reason why their
accesses are in order. Nothing is switched off: all else that the tool says of the kernel is a
finding. A judgement rests on the tool not following one way to wait, and so it counts only where
the tool reports that way's small kernel too (``race_patterns``), and is silent about the nearest
one that it does follow. A judgement that no trial of its kernel needs any more is stale, which is
reported as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from deepinfer_core.testing.race_patterns import WAYS, Heard

__all__ = ["JudgedRace", "judge", "read_judged", "standing"]

_ACCESS = re.compile(r"(Read|Write) access at (.+?)\+0x[0-9a-f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRace:
    """Reports of racecheck that are none of races.

    Attributes:
        name: of the judgement.
        kernel: whose reports, by its name in the catalogue.
        reads: expression for the function that reads.
        writes: expression for the function that writes.
        reports: of one trial at most; more are findings.
        way: of ``race_patterns.WAYS``, which the kernel waits in and the tool does not follow.
        contrast: the nearest one that it follows.
        reason: why the accesses are in order.
    """

    name: str
    kernel: str
    reads: str
    writes: str
    reports: int
    way: str
    contrast: str
    reason: str

    def covers(self, words: Sequence[str]) -> bool:
        """Whether every access that a report names is one of this judgement.

        Args:
            words: lines of one report.
        """
        lines = [line for line in words if " access at " in line]
        accesses = [found for line in lines if (found := _ACCESS.search(line))]
        kinds = {found[1] for found in accesses}
        expected = {"Read": self.reads, "Write": self.writes}
        is_all = len(accesses) == len(lines) and kinds == set(expected)
        return is_all and all(re.fullmatch(expected[found[1]], found[2]) for found in accesses)


def read_judged(path: Path | None) -> tuple[JudgedRace, ...]:
    """The judgements of a backend; none without a file.

    Raises:
        ValueError: an entry has other fields than a judgement, or names an unknown way.
    """
    if path is None:
        return ()
    entries = json.loads(path.read_text(encoding="utf-8"))
    names = {field.name for field in fields(JudgedRace)}
    for entry in entries:
        if set(entry) != names or not {entry["way"], entry["contrast"]} <= set(WAYS):
            raise ValueError(f"{path}: {entry.get('name')} is no judgement")
    return tuple(JudgedRace(**entry) for entry in entries)


def standing(judged: Sequence[JudgedRace], heard: Mapping[str, Heard]) -> tuple[JudgedRace, ...]:
    """The judgements that count with the tool of this machine.

    Args:
        judged: all.
        heard: what the tool says of their ways and contrasts.
    """
    return tuple(
        one
        for one in judged
        if heard.get(one.way) == "reported" and heard.get(one.contrast) == "silent"
    )


def judge(
    kernel: str, reports: Sequence[Sequence[str]], judged: Sequence[JudgedRace]
) -> tuple[list[str], list[Sequence[str]]]:
    """Tell reports that were judged from findings.

    Args:
        kernel: of the trial.
        reports: lines of each report of that trial.
        judged: judgements that stand.

    Returns:
        Names of the judgements that were needed, and the reports that are findings.
    """
    room = {one: one.reports for one in judged if one.kernel == kernel}
    needed, left = [], []
    for words in reports:
        found = next((one for one, count in room.items() if count and one.covers(words)), None)
        if found is None:
            left.append(words)
            continue
        room[found] -= 1
        needed.append(found.name)
    return list(dict.fromkeys(needed)), left
