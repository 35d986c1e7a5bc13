"""How do verbs print tables and data?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

__all__ = ["print_json", "print_table"]

_GAP = "  "


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
