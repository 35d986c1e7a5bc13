"""How do verbs print tables, data and problems, and where may they write?"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deepinfer_core.cli.parser import UsageError

__all__ = ["check_writable", "complain", "print_json", "print_table"]

_GAP = "  "


def complain(message: str, hint: str, *, kind: str = "error") -> None:
    """Print a problem as one line to standard error, and advice, if there is any, as another one.

    Without standard error nothing is said: ``print`` would take standard output in its place.
    """
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError):
        print(f"{kind}: {_one_line(message)}", file=sys.stderr)
        if hint:
            print(f"hint: {_one_line(hint)}", file=sys.stderr)
        sys.stderr.flush()


def _one_line(text: str) -> str:
    """Without line breaks and terminal commands, which files and plugins may bring along."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns; the last column is as long as it likes."""
    if not rows:
        return
    # Some cells are words of plugins and devices, which may hold line breaks and worse.
    rows = [["".join(c if c.isprintable() else " " for c in cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print(_GAP.join(cells).rstrip())


def print_json(data: Any) -> None:
    """Print data for another program."""
    print(json.dumps(data, indent=2, ensure_ascii=False, default=str))


def check_writable(path: Path) -> None:
    """Find out before anything is measured; a file that is there stays as it is.

    Raises:
        UsageError: it cannot be written.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint="name a file")
    was_there = path.exists()
    try:
        with path.open("ab"):
            pass
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}", hint="name another file"
        ) from error
    if not was_there:
        path.unlink()
