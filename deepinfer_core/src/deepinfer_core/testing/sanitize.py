"""Do a backend's kernels touch memory that is not theirs, or race for shared memory?

``python -m deepinfer_core.testing.sanitize deepinfer_nvidia.kernels.catalogue:catalogue --out
report.json`` runs memcheck and racecheck of compute-sanitizer on the small cases of every kernel.
Kernels are compiled first, in ``--jobs`` processes, into ``--cache``, so that no compiler runs
under the tools. What is not ready after ``--compile-s``, or not run after ``--check-s``, is not
checked, and the report names it. Reports of racecheck that the backend lists as judged
(``judged_races``) are told apart from findings. It takes a GPU, and minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from deepinfer_core.testing.judged_races import JudgedRace, read_judged, standing
from deepinfer_core.testing.race_patterns import heard_of
from deepinfer_core.testing.sanitizer import BEGIN, Tool, find_sanitizer, refusal, run_checked
from deepinfer_core.testing.trial_findings import RIGHT, WRONG, Checked, read_words, stale

if TYPE_CHECKING:
    from deepinfer_core.testing.kernel_trials import KernelTrial

__all__ = ["main"]

_TOOLS: tuple[Tool, ...] = ("memcheck", "racecheck")
_TRY_S = 40.0
_PROGRAM = "deepinfer_core.testing.sanitize"


def small_trials(reference: str, operator: str = "") -> list[KernelTrial]:
    """Of kernels that ``operator`` names (``is_named``), the first of each before any second."""
    from deepinfer_core.interfaces.operators.catalogue import is_named
    from deepinfer_core.testing.kernel_trials import trials

    catalogue = resolve_name(reference)()
    of_each = [
        [trial for trial in trials(catalogue, kernel) if trial.case.small]
        for kernel in catalogue.kernels
        if is_named(kernel, operator)
    ]
    turns = range(max(map(len, of_each), default=0))
    return [some[turn] for turn in turns for some in of_each if turn < len(some)]


def run_trials(
    reference: str, cache: str, numbers: Sequence[int], place: str, operator: str = ""
) -> None:
    """Run trials one after the other: the program that is checked."""
    import torch

    kernels, chosen = resolve_name(reference)().open(cache), small_trials(reference, operator)
    for number in numbers:
        trial = chosen[number]
        say(BEGIN + trial.id)
        given = trial.case.arguments(torch.Generator().manual_seed(number))
        try:
            wrong = trial.complaints(kernels, given, place)
        except Exception as error:  # noqa: BLE001 - of torch, the compiler or the driver
            say(f"{WRONG}{trial.id}: {type(error).__name__}: {error}".partition("\n")[0])
            return  # a device that failed once fails until the process ends
        say(f"{WRONG}{trial.id}: {wrong[0]}" if wrong else RIGHT + trial.id)


def check(args: argparse.Namespace, sanitizer: str, cache: str) -> dict[str, Any]:
    """Compile, run every tool that works here, and report."""
    from deepinfer_core.testing.kernel_compiling import compile_trials

    refused = {
        tool: refusal(sanitizer, tool, sys.executable, limit_s=_TRY_S) for tool in args.tools
    }
    for tool, words in refused.items():
        say(f"{tool} {'does not work here: ' + words if words else 'works here'}")
    tools = [tool for tool, words in refused.items() if not words]
    found = small_trials(args.catalogue, args.operator)
    problems = [""] * len(found)
    if tools:
        kernels = resolve_name(args.catalogue)().open(cache)
        problems = compile_trials(kernels, found, jobs=args.jobs, limit_s=args.compile_s)
    judged = read_judged(resolve_name(args.catalogue)().judged)
    ways = [name for one in judged for name in (one.way, one.contrast)]
    heard = heard_of(sanitizer, ways if "racecheck" in tools else ())
    names = [trial.id for trial in found]
    ready = [number for number, problem in enumerate(problems) if not problem]
    say(f"{len(ready)} of {len(names)} trials are compiled")
    numbered = {number: names[number] for number in ready}
    results = check_ready(args, sanitizer, cache, tools, numbered, standing(judged, heard))
    return {
        "refused": {tool: words for tool, words in refused.items() if words},
        "trials": len(names),
        "not_compiled": {
            name: problem for name, problem in zip(names, problems, strict=True) if problem
        },
        "tools": {tool: asdict(one) for tool, one in results.items()},
        "ways": heard,
        "stale": stale(results, judged, names),
    }


def check_ready(
    args: argparse.Namespace,
    sanitizer: str,
    cache: str,
    tools: list[Tool],
    names: dict[int, str],
    judged: Sequence[JudgedRace],
) -> dict[Tool, Checked]:
    """Run the trials of these numbers under each tool, in several processes at once."""
    results = {tool: Checked() for tool in tools}
    ends_s = time.monotonic() + args.check_s
    share = max(1, args.jobs // max(1, len(tools)))
    numbers = list(names)

    def run(tool: Tool, part: list[int]) -> tuple[Tool, Checked]:
        which = ("--cache", cache, "--place", args.place, "--operator", args.operator)
        chosen = (*which, "--run", *map(str, part))
        program = (sys.executable, "-m", _PROGRAM, args.catalogue, *chosen)
        left_s = max(1.0, ends_s - time.monotonic())
        _, words = run_checked(sanitizer, tool, program, limit_s=left_s)
        found = [names[number] for number in part]
        return tool, read_words(words, found, judged if tool == "racecheck" else ())

    parts = [(tool, numbers[n::share]) for tool in tools for n in range(share)]
    with ThreadPoolExecutor(args.jobs) as pool:
        for tool, said in pool.map(lambda one: run(*one), [one for one in parts if one[1]]):
            results[tool].add(said)
    return results


def is_clean(report: dict[str, Any]) -> bool:
    """Whether every trial was run under every tool, and nothing was found but what was judged."""
    tools = report["tools"].values()
    is_whole = not (report["refused"] or report["not_compiled"] or report["stale"])
    good = [len(one["clean"]) + len(one["judged"]) for one in tools]
    return is_whole and all(count == report["trials"] for count in good)


def summary(report: dict[str, Any]) -> str:
    """A few lines."""
    lines = [f"{report['trials']} trials, {len(report['not_compiled'])} not compiled in time"]
    for tool, one in report["tools"].items():
        counts = ", ".join(f"{len(found)} {name}" for name, found in one.items())
        lines.append(f"{tool}: {counts}")
        for name, words in one["findings"].items():
            lines.append(f"  {name}: {' | '.join(words)[:300]}")
        lines += [f"  {name}: {words[:200]}" for name, words in one["wrong"].items()]
        lines += [f"  {name}: judged: {', '.join(some)}" for name, some in one["judged"].items()]
    lines += [f"{name}: {heard}" for name, heard in report["ways"].items()]
    lines += [f"{name} is needed no more: take the judgement away" for name in report["stale"]]
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
    add("--operator", metavar="TEXT,...", default="", help="only kernels with one of these in them")
    add("--place", default="cuda", help=argparse.SUPPRESS)
    add("--run", type=int, nargs="+", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.run is not None:
        run_trials(chosen.catalogue, chosen.cache, chosen.run, chosen.place, chosen.operator)
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
