"""Where is written down what became of drafts, so that confidences can be fitted to it?

A record file has one line of JSON that says whose drafts these are, and then one line for each
verified block: how many drafts were verified, how many of them in front were right, and the logits
of all confidences as the network gave them. Runs of the same checkpoint, draft length and rule may
be appended to one file. Requests do not depend on it: where it cannot be written any more, nothing
is recorded from then on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch
from deepinfer_core.errors import ConfigError
from deepinfer_core.interfaces.draft_planner import AcceptanceRule
from deepinfer_core.telemetry.logs import get_logger

from deepinfer_dspark.fitting import BlockRecords
from deepinfer_dspark.reading import DAMAGE, check_ordinary, finite, read_ordinary

if TYPE_CHECKING:
    from deepinfer_core.interfaces.draft_planner import DraftOutcome

__all__ = ["BlockRecorder", "RecordHeader", "read_records"]

_FORMAT = "deepinfer-dspark record 1"
_LONGEST_HEADER = 65_536
"""Characters of a first line; a longer one is no header."""
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordHeader:
    """Whose drafts a file is about.

    Attributes:
        checkpoint: identity of the checkpoint.
        rule: by which drafts were accepted.
        temperatures: that confidences were divided by, one a draft.
    """

    checkpoint: str
    rule: str
    temperatures: tuple[float, ...]


class BlockRecorder:
    """Appends blocks to a file.

    Args:
        path: of the file; it may exist.
        header: what its blocks are about.

    Attributes:
        written: blocks that were written.
        lost: blocks that could not be written, or came later.

    Raises:
        ConfigError: the file cannot be written, or is about something else.
    """

    def __init__(self, path: Path, header: RecordHeader) -> None:
        _begin(path, header)
        self._path = path
        self.written = self.lost = 0

    def add(self, outcomes: Sequence[DraftOutcome]) -> None:
        """Write the blocks of one step; those of which nothing was verified say nothing."""
        lines = [
            json.dumps([item.verified, item.accepted, *item.raw])
            for item in outcomes
            if item.verified and item.raw
        ]
        if self.lost or not lines:
            self.lost += len(lines)
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
        except OSError as error:
            self.lost = len(lines)
            _log.warning(
                "draft_record.ended", path=str(self._path), reason=str(error), written=self.written
            )
        else:
            self.written += len(lines)


def read_records(path: Path) -> tuple[RecordHeader, BlockRecords]:
    """Read a file.

    Raises:
        ConfigError: it cannot be read, or is not such a file; names the line.
    """
    try:
        lines = read_ordinary(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"asked for the records in {path}, found {error}", hint="record some first"
        ) from error
    header = _header(path, lines[0] if lines else "")
    width = len(header.temperatures)
    blocks: list[tuple[int, int, list[float]]] = []
    for number, line in enumerate(lines[1:], start=2):
        block = _block(line, width)
        if block is None:
            raise ConfigError(
                f"{path} line {number} is no block of {width} drafts with finite logits",
                hint="remove the line, if its writer was killed, found the disk full, "
                "or had a network that overflowed",
            )
        blocks.append(block)
    return header, BlockRecords(
        logit_Bn=torch.tensor([item[2] for item in blocks], dtype=torch.float64).view(-1, width),
        verified_B=torch.tensor([item[0] for item in blocks], dtype=torch.int64),
        accepted_B=torch.tensor([item[1] for item in blocks], dtype=torch.int64),
    )


def _begin(path: Path, header: RecordHeader) -> None:
    """Write the header, or see that it is there."""
    try:
        check_ordinary(path)
        with path.open("a+", encoding="utf-8") as file:
            file.seek(0)
            first = file.readline(_LONGEST_HEADER)
            if not first:
                file.write(json.dumps({"format": _FORMAT, **asdict(header)}) + "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"asked to record in {path}, found {error}", hint="name a file that can be written"
        ) from error
    if first and (found := _header(path, first)) != header:
        raise ConfigError(
            f"asked to record {header} in {path}, found a file of {found}",
            hint="name another file",
        )


def _header(path: Path, line: str) -> RecordHeader:
    try:
        data: Any = json.loads(line)
        if data.pop("format") == _FORMAT:
            data["temperatures"] = tuple(map(finite, data["temperatures"]))
            if _is_whole(header := RecordHeader(**data)):
                return header
    except DAMAGE:
        pass  # said below
    raise ConfigError(f"{path} is no record of drafts", hint="name a file that was recorded")


def _is_whole(header: RecordHeader) -> bool:
    named = isinstance(header.checkpoint, str) and header.rule in get_args(AcceptanceRule)
    return named and bool(header.temperatures) and min(header.temperatures) > 0


def _block(line: str, width: int) -> tuple[int, int, list[float]] | None:
    try:
        verified, accepted, *logits = json.loads(line)
        whole = type(verified) is int and type(accepted) is int  # True is an int, too
        numbers = [finite(logit) for logit in logits]
    except DAMAGE:
        return None
    if not whole or not 0 <= accepted <= verified <= width or len(numbers) != width:
        return None
    return verified, accepted, numbers
