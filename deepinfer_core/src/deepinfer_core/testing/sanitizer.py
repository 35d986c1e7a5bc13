"""What does a checker of the CUDA toolkit complain about while a program runs?

``compute-sanitizer`` prints its findings between the program's own lines. The program says which
trial begins, so that each finding has a name. Memory that torch would keep and hand out again is
allocated piece by piece: else a kernel could write behind a tensor unseen.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = [
    "BEGIN",
    "Finding",
    "Tool",
    "are_all_printed",
    "find_sanitizer",
    "findings",
    "refusal",
    "run_checked",
]

Tool = Literal["memcheck", "racecheck"]

BEGIN = "trial begins: "
_MARK = "========="
_USUAL = "/usr/local/cuda/bin/compute-sanitizer"
_SUMMARIES = ("COMPUTE-SANITIZER", "ERROR SUMMARY", "RACECHECK SUMMARY", "LEAK SUMMARY")
_MOST_FINDINGS = 1000
"""Of one run; the tool prints no more."""
_UNSAID = "were not printed"
_SAY_SO = "import torch; torch.zeros(4, device='cuda').add_(1).cpu()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one tool said during one trial.

    Attributes:
        trial: which began last before it; empty if none had.
        words: its lines.
    """

    trial: str
    words: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The object of the report."""
        return asdict(self)


def find_sanitizer() -> str | None:
    """The path of compute-sanitizer, or None; the toolkit's folder need not be searched."""
    return shutil.which("compute-sanitizer") or shutil.which(_USUAL)


def run_checked(
    sanitizer: str, tool: Tool, command: Sequence[str], *, limit_s: float
) -> tuple[int | None, str]:
    """Run a program under one tool.

    Args:
        sanitizer: its path.
        tool: which one.
        command: the program.
        limit_s: then it is ended.

    Returns:
        Exit code, None if it was ended, and everything that was printed.
    """
    whole = (
        "env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1",
        sanitizer, "--tool", tool, "--print-limit", str(_MOST_FINDINGS), *command,
    )  # fmt: skip
    child = subprocess.Popen(
        whole,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        words, _ = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        # The tool's own child too, which would keep the pipe open.
        os.killpg(child.pid, signal.SIGKILL)
        words, _ = child.communicate()
        return None, words
    return child.returncode, words


def refusal(sanitizer: str, tool: Tool, python: str, *, limit_s: float) -> str:
    """Why a tool does not work on this machine; empty if it does.

    Some virtual machines hide the device from it, so a program of one line is tried first.
    """
    code, words = run_checked(sanitizer, tool, (python, "-c", _SAY_SO), limit_s=limit_s)
    if code == 0 and not findings(words):
        return ""
    lines = [line for line in words.splitlines() if line.strip()]
    end = f"exit code {code}" if code is not None else f"not done after {limit_s:.0f} s"
    return " | ".join([end, *lines[-4:]])[:600]


def findings(words: str) -> list[Finding]:
    """The findings in what a run printed, in their order.

    Args:
        words: of the program and the tool together.
    """
    trial, found, block = "", [], list[str]()

    def close() -> None:
        if block:
            found.append(Finding(trial=trial, words=tuple(block)))
            block.clear()

    for line in words.splitlines():
        if line.startswith(BEGIN):
            close()
            trial = line.removeprefix(BEGIN)
        elif line.startswith(_MARK):
            text = line.removeprefix(_MARK).strip()
            if not text or text.startswith(_SUMMARIES):
                close()
            else:
                block.append(text)
    close()
    return found


def are_all_printed(words: str) -> bool:
    """Whether a run printed all that it found; what it kept to itself is of no known trial."""
    return not any(line.startswith(_MARK) and _UNSAID in line for line in words.splitlines())
