"""The verb ``deepinfer calibrate``: from recorded drafts to a table of temperatures."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from deepinfer_core.errors import ConfigError

if TYPE_CHECKING:
    from deepinfer_dspark.calibration import CalibrationTable

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "record",
        type=Path,
        metavar="RECORD",
        help="file of `--set components.drafter.options.record=RECORD`",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="TABLE.json", help="where the table goes"
    )
    parser.add_argument("--json", action="store_true", help="as data")


def run(args: argparse.Namespace) -> int:
    """Fit and write the table."""
    from deepinfer_dspark.calibration import CalibrationTable, write_table
    from deepinfer_dspark.fitting import fit
    from deepinfer_dspark.recording import read_records

    header, records = read_records(args.record)
    try:
        found = fit(records, header.temperatures)
    except ValueError as error:
        raise ConfigError(
            f"asked to fit {args.record}, found that {error}",
            hint='record more, with speculation.budget = "fixed"',
        ) from error
    table = CalibrationTable(checkpoint=header.checkpoint, rule=header.rule, **asdict(found))
    write_table(args.out, table)
    if args.json:
        print(json.dumps(asdict(table), indent=2))
    else:
        _print_table(table)
    return 0


def _print_table(table: CalibrationTable) -> None:
    print("draft  blocks  temperature  error before  error after")
    rows = zip(table.blocks, table.temperatures, table.error_before, table.error_after, strict=True)
    for number, (blocks, temperature, before, after) in enumerate(rows, start=1):
        print(f"{number:5}  {blocks:6}  {temperature:11.3f}  {before:12.4f}  {after:11.4f}")
