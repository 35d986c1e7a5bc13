"""How is a measured figure written down?

One JSON object a figure, in the shape of ``deepinfer bench --json``: ``name``, ``value``, ``unit``,
``bound`` or ``peer`` with its own value, ``ratio``, ``hardware``, ``date``, ``commit``,
``command``.
"""

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def hardware() -> str:
    """Name the processor and how many cores this process may use."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.partition(":")[2].strip()
            for line in info.read_text().splitlines()
            if "model name" in line
        ]
        model = names[0] if names else model
    return f"{model}, {len(os.sched_getaffinity(0))} cores"


def commit() -> str:
    """Short hash of the checkout, with ``+`` when it has uncommitted changes."""
    root = Path(__file__).parent
    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    dirty = subprocess.run(
        ["git", "status", "--porcelain"], cwd=root, check=True, capture_output=True, text=True
    )
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")


def figure(name: str, value: float, unit: str, **extra: object) -> dict[str, object]:
    """Describe one figure; ``extra`` holds ``bound`` or ``peer``, ``ratio`` and so on."""
    return {
        "name": name,
        "value": value,
        "unit": unit,
        **extra,
        "hardware": hardware(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit(),
        "command": " ".join(["python", "benchmarks/" + Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def write(file_name: str, figures: list[dict[str, object]]) -> None:
    """Store figures under ``benchmarks/results`` and print them."""
    text = json.dumps(figures, indent=1)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / file_name).write_text(text + "\n")
    print(text)
