"""How long after the shell command does the quick start print its first token?

Starts ``deepinfer generate --stream`` several times as a user would and reads its output
unbuffered. The share of imports is measured in the same run: a bare interpreter, and one that
imports torch.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from record import figure, options, write

REPEATS = 5


def seconds_until_output(command: list[str]) -> float:
    """Run a command until its first byte on stdout, then end it."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        first = os.read(process.stdout.fileno(), 1)
        elapsed = time.perf_counter() - began
        process.terminate()
    if not first:
        raise SystemExit(f"no output from: {' '.join(command)}")
    return elapsed


def median(command: list[str]) -> tuple[float, list[float]]:
    """Median and all times of several runs, after one that warms the file cache."""
    seconds_until_output(command)
    times = [seconds_until_output(command) for _ in range(REPEATS)]
    return statistics.median(times), [round(t, 3) for t in times]


def main() -> None:
    """Measure and store."""
    args = options(__doc__).parse_args()
    deepinfer = str(Path(sys.executable).with_name("deepinfer"))
    first, runs = median(
        [
            deepinfer,
            "generate",
            "Once upon a time",
            "--max-tokens",
            "8",
            "--temperature",
            "0",
            "--stream",
        ]
    )
    torch, _ = median([sys.executable, "-c", "import torch; print(1, flush=True)"])
    bare, _ = median([sys.executable, "-c", "print(1, flush=True)"])
    write(
        "first_token.json",
        [
            figure(
                "quick_start.first_token", round(first, 3), "s",
                bound=5.0, ratio=round(first / 5.0, 3),
                runs=runs, import_torch_s=round(torch, 3), interpreter_s=round(bare, 3),
                import_share=round(torch / first, 3),
            )
        ],
        is_record=args.record,
    )  # fmt: skip


if __name__ == "__main__":
    main()
