"""What did a tool of compute-sanitizer find in each trial that it ran?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from deepinfer_core.testing.judged_races import JudgedRace, judge
from deepinfer_core.testing.sanitizer import Tool, are_all_printed, findings

__all__ = ["RIGHT", "WRONG", "Checked", "read_words", "stale"]

RIGHT, WRONG = "trial right: ", "trial wrong: "
"""What the program that is checked says when a trial has ended, before its id."""

_MOST_LINES = 12
"""Of each finding, in the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What one tool found.

    Attributes:
        clean: trials without a complaint of tool or twin.
        judged: trial to the names of judgements, where all that the tool says was judged.
        findings: trial to the tool's words.
        wrong: trial to the twin's words.
        unfinished: trials that were not run to their end.
    """

    clean: list[str] = field(default_factory=list)
    judged: dict[str, list[str]] = field(default_factory=dict)
    findings: dict[str, list[str]] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)

    def add(self, other: Checked) -> None:
        """Take over what another run of the tool found."""
        self.clean.extend(other.clean)
        self.judged.update(other.judged)
        self.findings.update(other.findings)
        self.wrong.update(other.wrong)
        self.unfinished.extend(other.unfinished)


def read_words(words: str, names: Sequence[str], judged: Sequence[JudgedRace] = ()) -> Checked:
    """What a run of ``names`` under a tool says.

    Args:
        words: that program and tool printed.
        names: ids of the trials that it was to run.
        judged: judgements that stand.
    """
    said: dict[str, list[Sequence[str]]] = {}
    for one in findings(words):
        said.setdefault(one.trial, []).append(one.words)
    parts = {name: judge(_kernel_of(name), reports, judged) for name, reports in said.items()}
    found = {
        name: [line for report in left for line in report[:_MOST_LINES]]
        for name, (_, left) in parts.items()
        if left
    }
    lines = words.splitlines()
    right = {line.removeprefix(RIGHT) for line in lines if line.startswith(RIGHT)}
    if not are_all_printed(words):
        right &= set(found)  # of any other trial something may have been kept back
    wrong = dict(
        line.removeprefix(WRONG).split(": ", 1) for line in lines if line.startswith(WRONG)
    )
    return Checked(
        clean=[name for name in names if name in right and name not in parts],
        judged={
            name: needed for name, (needed, left) in parts.items() if name in right and not left
        },
        findings=found,
        wrong=wrong,
        unfinished=[name for name in names if name not in right and name not in wrong],
    )


def _kernel_of(trial: str) -> str:
    return trial.partition("[")[0]


def stale(
    results: Mapping[Tool, Checked], judged: Sequence[JudgedRace], names: Sequence[str]
) -> list[str]:
    """Judgements that no trial of their kernel needed, although it has some and all were run.

    Args:
        results: of the tools.
        judged: all judgements.
        names: ids of all trials.
    """
    found = results.get("racecheck")
    if found is None:
        return []
    needed = {name for some in found.judged.values() for name in some}
    done = {*found.clean, *found.judged, *found.findings}
    own = {one.name: {n for n in names if _kernel_of(n) == one.kernel} for one in judged}
    return [
        name for name, trials in own.items() if name not in needed and trials and trials <= done
    ]
