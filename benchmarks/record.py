"""How is a measured figure written down?

One JSON object a figure, in the shape of ``deepinfer bench --json``: ``name``, ``value``, ``unit``,
``bound`` or ``peer`` with its own value, ``ratio``, ``hardware``, ``date``, ``commit``,
``command``. With ``--record`` they take the place of the published ones; else git ignores them.
"""

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from deepinfer_core.bench.stamp import commit_of
from deepinfer_core.plugin.cpu_facts import cpu_facts

RESULTS = Path(__file__).parent / "results"
UNRECORDED = Path(__file__).parent / "unrecorded"


def options(description: str | None) -> argparse.ArgumentParser:
    """A parser of a script's options, which all have ``--record``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--record",
        action="store_true",
        help=f"write into {RESULTS.parent.name}/{RESULTS.name}, not {UNRECORDED.name}",
    )
    return parser


def hardware() -> str:
    """Name the processor and how many cores this process may use."""
    facts = cpu_facts()
    return f"{facts['model']}, {facts['cores']} cores"


def figure(name: str, value: float, unit: str, **extra: object) -> dict[str, object]:
    """Describe one figure; ``extra`` holds ``bound`` or ``peer``, ``ratio`` and so on."""
    return {
        "name": name,
        "value": value,
        "unit": unit,
        **extra,
        "hardware": hardware(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit_of(Path(__file__)),
        "command": " ".join(["python", "benchmarks/" + Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def write(file_name: str, figures: list[dict[str, object]], *, is_record: bool) -> None:
    """Print figures, and store them: under ``benchmarks/results`` only if they are a record."""
    text = json.dumps(figures, indent=1)
    file = (RESULTS if is_record else UNRECORDED) / file_name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text + "\n")
    print(text)
    print(f"written to {file}", file=sys.stderr)
