"""On which texts are likelihoods measured?

The first documents of each source of a JSON-lines file, cut to a length. A line has ``source`` and
either ``text``, which is encoded behind the beginning-of-sequence token and ended, or ``ids``.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepinfer_core.errors import ConfigError

__all__ = ["Sample", "Selection", "read_samples", "select"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which part of a file is measured.

    Attributes:
        file: path relative to the folder of the baseline.
        sha256: of the file, hexadecimal.
        per_source: documents of each source, in the order of the file.
        max_tokens: what is behind so many tokens of a document is left out.
    """

    file: str
    sha256: str
    per_source: int
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One text.

    Attributes:
        id: source and number within it, e.g. ``books/0``.
        token_ids: at least two; the first is given, the others are predicted.
    """

    id: str
    token_ids: tuple[int, ...]


def select(folder: Path, file: str, *, per_source: int, max_tokens: int) -> Selection:
    """A selection of a file as it is now.

    Args:
        folder: of the baseline.
        file: path relative to it.
        per_source: at least 1.
        max_tokens: at least 2.

    Raises:
        ConfigError: the file cannot be read, or a number is too small.
    """
    if per_source < 1 or max_tokens < 2:
        raise ConfigError(
            f"asked for {per_source} documents a source of {max_tokens} tokens",
            hint="at least 1 document and 2 tokens",
        )
    digest = hashlib.sha256(_content(folder / file)).hexdigest()
    return Selection(file=file, sha256=digest, per_source=per_source, max_tokens=max_tokens)


def read_samples(
    folder: Path, selection: Selection, encode: Callable[[str], list[int]], end_id: int
) -> tuple[Sample, ...]:
    """The texts of a selection.

    Args:
        folder: of the baseline.
        selection: what to read.
        encode: token ids of a text, the beginning-of-sequence token included.
        end_id: stands behind a text.

    Raises:
        ConfigError: the file cannot be read, is not the one selected from, or has no documents.
    """
    content = _content(folder / selection.file)
    if hashlib.sha256(content).hexdigest() != selection.sha256:
        raise ConfigError(
            f"{folder / selection.file} is not the file that the baseline was measured on",
            hint="bring it back, or run deepinfer eval refresh",
        )
    seen: Counter[str] = Counter()
    samples = []
    for place, document in _documents(content, str(folder / selection.file)):
        source = document["source"]
        seen[source] += 1
        if seen[source] > selection.per_source:
            continue
        ids = document["ids"] if "ids" in document else [*encode(document["text"]), end_id]
        ids = tuple(ids[: selection.max_tokens])
        if len(ids) < 2:
            raise ConfigError(f"{place} has fewer than two tokens", hint="leave it out")
        samples.append(Sample(id=f"{source}/{seen[source] - 1}", token_ids=ids))
    if not samples:
        raise ConfigError(f"{folder / selection.file} has no documents", hint="name another file")
    return tuple(samples)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"the texts of the gate, {path}, cannot be read: {error.strerror or error}",
            hint="--texts names another file when a baseline is refreshed",
        ) from error


def _documents(content: bytes, source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        place = f"{source}:{number}"
        try:
            document = json.loads(line)
            is_document = isinstance(document["source"], str) and (
                all(type(token) is int for token in document["ids"])
                if "ids" in document
                else isinstance(document["text"], str)
            )
        except (KeyError, TypeError, ValueError, RecursionError):
            is_document = False
        if not is_document:
            raise ConfigError(
                f"{place} is no document",
                hint='each line is {"source": "...", "text": "..."} or has "ids"',
            )
        yield place, document
