"""In which file are fitted temperatures kept, and for which checkpoint are they good?"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deepinfer_core.errors import ConfigError
from deepinfer_core.whole_files import replace_file

from deepinfer_dspark.reading import DAMAGE, finite, read_ordinary

__all__ = ["CalibrationTable", "read_table", "write_table"]

_FORMAT = "deepinfer-dspark calibration 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationTable:
    """Temperatures of one checkpoint's confidences.

    Attributes:
        checkpoint: identity of the checkpoint.
        rule: by which the recorded drafts were accepted.
        temperatures: one a draft.
        blocks: recorded blocks that told about each draft.
        error_before: calibration error of each draft's survival without this table.
        error_after: the same with it.
    """

    checkpoint: str
    rule: str
    temperatures: tuple[float, ...]
    blocks: tuple[int, ...]
    error_before: tuple[float, ...]
    error_after: tuple[float, ...]


def write_table(path: Path, table: CalibrationTable) -> None:
    """Write a table, or leave the file as it was.

    Raises:
        ConfigError: the file cannot be written.
    """
    text = json.dumps({"format": _FORMAT, **asdict(table)}, indent=1) + "\n"
    try:
        replace_file(path, text)
    except OSError as error:
        raise ConfigError(
            f"asked to write {path}, found {error}", hint="name a file in a folder that exists"
        ) from error


def read_table(path: Path, *, checkpoint: str, drafts: int, rule: str) -> CalibrationTable:
    """Read a table for use.

    Args:
        path: of the file.
        checkpoint: that it must be for.
        drafts: of a whole block, as many temperatures as it must have.
        rule: by which drafts will be accepted.

    Raises:
        ConfigError: it cannot be read, is no table, or is for something else.
    """
    table = _read(path)
    for what, asked, found in (
        ("of checkpoint", checkpoint, table.checkpoint),
        ("for drafts", drafts, len(table.temperatures)),
        ("of drafts accepted by rule", rule, table.rule),
    ):
        if asked != found:
            raise ConfigError(
                f"asked for a calibration {what} {asked}, found one {what} {found} in {path}",
                hint="record and fit one with `deepinfer calibrate`, or leave the option out",
            )
    return table


def _read(path: Path) -> CalibrationTable:
    try:
        data: Any = json.loads(read_ordinary(path))
        if data.pop("format") != _FORMAT:
            raise ValueError("another format")
        data["blocks"] = tuple(map(_count, data["blocks"]))
        for name in ("temperatures", "error_before", "error_after"):
            data[name] = tuple(map(finite, data[name]))
        table = CalibrationTable(**data)
        if not all(2**-126 <= temperature < 2**128 for temperature in table.temperatures):
            raise ValueError("a temperature that is not positive and a normal fp32")
    except (OSError, *DAMAGE) as error:
        raise ConfigError(
            f"asked for the calibration in {path}, found {error!r}",
            hint="write one with `deepinfer calibrate`",
        ) from error
    return table


def _count(value: object) -> int:
    finite(value)
    if not isinstance(value, int):
        raise ValueError(f"{value} where a number of blocks should be")
    return value
