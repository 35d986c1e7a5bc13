"""Do a backend's kernels touch memory that is not theirs, or race for shared memory?

``python -m deepinfer_core.testing.sanitize deepinfer_nvidia.kernels.catalogue:catalogue --out
report.json`` runs memcheck and racecheck of compute-sanitizer on the small cases of every kernel.
Kernels are compiled first, in ``--jobs`` processes, into ``--cache``, so that no compiler runs
under the tools. What is not ready after ``--compile-s``, or not run after ``--check-s``, is not
checked, and the report names it. It takes a GPU, and minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from deepinfer_core.testing.sanitizer import (
    BEGIN,
    Tool,
    find_sanitizer,
    findings,
    refusal,
    run_checked,
)

if TYPE_CHECKING:
    from deepinfer_core.testing.kernel_trials import KernelTrial

__all__ = ["Checked", "main", "read_words"]

_TOOLS: tuple[Tool, ...] = ("memcheck", "racecheck")
_RIGHT, _WRONG = "trial right: ", "trial wrong: "
_TRY_S = 40.0
_PROGRAM = "deepinfer_core.testing.sanitize"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What one tool found.

    Attributes:
        clean: trials without a complaint of tool or twin.
        findings: trial to the tool's words.
        wrong: trial to the twin's words.
        unfinished: trials that were not run to their end.
    """

    clean: list[str] = field(default_factory=list)
    findings: dict[str, list[str]] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)

    def add(self, other: Checked) -> None:
        """Take over what another run of the tool found."""
        self.clean.extend(other.clean)
        self.findings.update(other.findings)
        self.wrong.update(other.wrong)
        self.unfinished.extend(other.unfinished)


def read_words(words: str, names: Sequence[str]) -> Checked:
    """What a run of ``names`` under a tool says.

    Args:
        words: that program and tool printed.
        names: ids of the trials that it was to run.
    """
    found: dict[str, list[str]] = {}
    for one in findings(words):
        found.setdefault(one.trial, []).extend(one.words)
    lines = words.splitlines()
    right = {line.removeprefix(_RIGHT) for line in lines if line.startswith(_RIGHT)}
    said = [line.removeprefix(_WRONG) for line in lines if line.startswith(_WRONG)]
    wrong = dict(line.split(": ", 1) for line in said)
    return Checked(
        clean=[name for name in names if name in right and name not in found],
        findings=found,
        wrong=wrong,
        unfinished=[name for name in names if name not in right and name not in wrong],
    )


def small_trials(reference: str) -> list[KernelTrial]:
    """Of every kernel, the first of each before the second of any."""
    from deepinfer_core.testing.kernel_trials import trials

    catalogue = resolve_name(reference)()
    of_each = [
        [trial for trial in trials(catalogue, kernel) if trial.case.small]
        for kernel in catalogue.kernels
    ]
    turns = range(max(map(len, of_each), default=0))
    return [some[turn] for turn in turns for some in of_each if turn < len(some)]


def run_trials(reference: str, cache: str, numbers: Sequence[int], place: str) -> None:
    """Run trials one after the other: the program that is checked."""
    import torch

    kernels, chosen = resolve_name(reference)().open(cache), small_trials(reference)
    for number in numbers:
        trial = chosen[number]
        say(BEGIN + trial.id)
        given = trial.case.arguments(torch.Generator().manual_seed(number))
        try:
            wrong = trial.complaints(kernels, given, place)
        except Exception as error:  # noqa: BLE001 - of torch, the compiler or the driver
            say(f"{_WRONG}{trial.id}: {type(error).__name__}: {error}".partition("\n")[0])
            return  # a device that failed once fails until the process ends
        say(f"{_WRONG}{trial.id}: {wrong[0]}" if wrong else _RIGHT + trial.id)


def check(args: argparse.Namespace, sanitizer: str, cache: str) -> dict[str, Any]:
    """Compile, run every tool that works here, and report."""
    from deepinfer_core.testing.kernel_compiling import compile_trials

    refused = {
        tool: refusal(sanitizer, tool, sys.executable, limit_s=_TRY_S) for tool in args.tools
    }
    for tool, words in refused.items():
        say(f"{tool} {'does not work here: ' + words if words else 'works here'}")
    tools = [tool for tool, words in refused.items() if not words]
    found = small_trials(args.catalogue)
    problems = [""] * len(found)
    if tools:
        kernels = resolve_name(args.catalogue)().open(cache)
        problems = compile_trials(kernels, found, jobs=args.jobs, limit_s=args.compile_s)
    names = [trial.id for trial in found]
    ready = [number for number, problem in enumerate(problems) if not problem]
    say(f"{len(ready)} of {len(names)} trials are compiled")
    results = check_ready(
        args, sanitizer, cache, tools, {number: names[number] for number in ready}
    )
    return {
        "refused": {tool: words for tool, words in refused.items() if words},
        "trials": len(names),
        "not_compiled": {
            name: problem for name, problem in zip(names, problems, strict=True) if problem
        },
        "tools": {tool: asdict(one) for tool, one in results.items()},
    }


def check_ready(
    args: argparse.Namespace, sanitizer: str, cache: str, tools: list[Tool], names: dict[int, str]
) -> dict[Tool, Checked]:
    """Run the trials of these numbers under each tool, in several processes at once."""
    results = {tool: Checked() for tool in tools}
    ends_s = time.monotonic() + args.check_s
    share = max(1, args.jobs // max(1, len(tools)))
    numbers = list(names)

    def run(tool: Tool, part: list[int]) -> tuple[Tool, Checked]:
        chosen = ("--cache", cache, "--place", args.place, "--run", *map(str, part))
        program = (sys.executable, "-m", _PROGRAM, args.catalogue, *chosen)
        left_s = max(1.0, ends_s - time.monotonic())
        _, words = run_checked(sanitizer, tool, program, limit_s=left_s)
        return tool, read_words(words, [names[number] for number in part])

    parts = [(tool, numbers[n::share]) for tool in tools for n in range(share)]
    with ThreadPoolExecutor(args.jobs) as pool:
        for tool, said in pool.map(lambda one: run(*one), [one for one in parts if one[1]]):
            results[tool].add(said)
    return results


def is_clean(report: dict[str, Any]) -> bool:
    """Whether every trial was run under every tool, and nothing was found."""
    tools = report["tools"].values()
    is_whole = not report["refused"] and not report["not_compiled"]
    return is_whole and all(len(one["clean"]) == report["trials"] for one in tools)


def summary(report: dict[str, Any]) -> str:
    """A few lines."""
    lines = [f"{report['trials']} trials, {len(report['not_compiled'])} not compiled in time"]
    for tool, one in report["tools"].items():
        counts = ", ".join(f"{len(found)} {name}" for name, found in one.items())
        lines.append(f"{tool}: {counts}")
        for name, words in one["findings"].items():
            lines.append(f"  {name}: {' | '.join(words)[:300]}")
        lines += [f"  {name}: {words[:200]}" for name, words in one["wrong"].items()]
    return "\n".join(lines)


def say(words: str) -> None:
    """At once: the tool's own lines come in between."""
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Check a backend.

    Returns:
        Exit code: 0 if everything was run and is clean, 1 if not, 2 if no tool works here.
    """
    parser = argparse.ArgumentParser(description="Run small cases under compute-sanitizer.")
    add = parser.add_argument
    add("catalogue", help="module:function of the backend's kernel catalogue")
    add("--tools", nargs="+", choices=_TOOLS, default=list(_TOOLS))
    add("--jobs", type=int, default=8, help="processes that compile, or are checked, at once")
    add("--compile-s", type=float, default=1800.0, help="time for compiling")
    add("--check-s", type=float, default=1800.0, help="time for all tools together")
    add("--cache", default="", help="folder of compiled kernels; a new one if not given")
    add("--out", type=Path, help="JSON of everything that was found")
    add("--place", default="cuda", help=argparse.SUPPRESS)
    add("--run", type=int, nargs="+", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.run is not None:
        run_trials(chosen.catalogue, chosen.cache, chosen.run, chosen.place)
        return 0
    sanitizer = find_sanitizer()
    if sanitizer is None:
        say("there is no compute-sanitizer on this machine; it comes with the CUDA toolkit")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        report = check(chosen, sanitizer, chosen.cache or folder)
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    say(summary(report))
    return 0 if is_clean(report) else 1 if report["tools"] else 2


if __name__ == "__main__":
    sys.exit(main())
