"""How is a file of requests read that may be larger than the memory?

Twice, line by line: once before anything runs, to refuse a ``custom_id`` that stands twice and to
count; once to run. A few hundred bytes a request stay in memory, whatever its size. Lines that were
appended after the first pass are left for the next run. A byte order mark of UTF-8 in front of the
file is no part of its first line.
"""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from deepinfer_core.batch.lines import BatchLine, read_line
from deepinfer_core.errors import ConfigError

__all__ = ["MAX_LINE_BYTES", "Scan", "read_lines", "scan_input"]

MAX_LINE_BYTES = 64 << 20
"""Far above a prompt of a million tokens; a longer line is answered with an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What the first pass found.

    Attributes:
        requests: lines that get an answer.
        unanswered_chats: conversations among those without an answer.
        size_bytes: where the second pass ends.
    """

    requests: int
    unanswered_chats: int
    size_bytes: int


def scan_input(path: Path, answered: Set[str], *, max_line_bytes: int = MAX_LINE_BYTES) -> Scan:
    """Look at every line.

    Args:
        path: the input.
        answered: ``line_id`` of each line whose answer the output holds.
        max_line_bytes: longest line that is read as a whole.

    Raises:
        ConfigError: the file cannot be read, a ``custom_id`` stands twice, or the output answers a
            line that is not there.
    """
    names: set[bytes] = set()
    requests = chats = met = 0
    with _open(path) as file:
        for line in _lines(file, None, max_line_bytes):
            requests += 1
            _refuse_twice(path, line, names)
            met += line.line_id in answered
            chats += line.kind == "chat" and line.line_id not in answered
        size_bytes = file.tell()
    if met < len(answered):
        raise ConfigError(
            f"the output answers {len(answered) - met} lines that {path} does not hold",
            hint="the input was changed, or belongs to another output; name a new output",
        )
    return Scan(requests=requests, unanswered_chats=chats, size_bytes=size_bytes)


def read_lines(
    path: Path, scan: Scan, answered: Set[str], *, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[BatchLine]:
    """Lines that have no answer yet, in their order.

    ``answered`` may grow in the meantime: it is asked about each line once, when its turn comes.

    Raises:
        ConfigError: the file cannot be read.
    """
    with _open(path) as file:
        for line in _lines(file, scan.size_bytes, max_line_bytes):
            if line.line_id not in answered:
                yield line


def _refuse_twice(path: Path, line: BatchLine, names: set[bytes]) -> None:
    if line.custom_id is None:
        return
    # A checksum of 128 bits in place of the name, which may be of any length.
    name = line.custom_id.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(name, digest_size=16).digest()
    if digest in names:
        raise ConfigError(
            f"{path}:{line.number}: custom_id {line.custom_id[:60]!r} stands in an earlier line",
            hint="give each request a custom_id of its own; nothing was run",
        )
    names.add(digest)


def _open(path: Path) -> IO[bytes]:
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path} is no file", hint="the input is read twice; name a file")
        return path.open("rb")
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror or error}", hint="name a readable file"
        ) from error


def _lines(file: IO[bytes], end: int | None, max_line_bytes: int) -> Iterator[BatchLine]:
    number = 0
    while (end is None or file.tell() < end) and (content := file.readline(max_line_bytes)):
        number += 1
        problem = ""
        if not content.endswith(b"\n") and (rest := file.readline(max_line_bytes)):
            problem = f"the line is longer than {max_line_bytes} bytes"
            while not rest.endswith(b"\n") and (rest := file.readline(max_line_bytes)):
                pass
        if number == 1:
            content = content.removeprefix(codecs.BOM_UTF8)
        if content := content.strip():
            yield read_line(content, number, problem=problem)
