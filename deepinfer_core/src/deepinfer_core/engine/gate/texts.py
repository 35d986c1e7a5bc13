"""On which texts are likelihoods measured?

The first documents of each source of a JSON-lines file, cut to a length; and, for conditions that
need a long prompt, the first ones that have a greater length. A line has ``source`` and either
``text``, which is encoded behind the beginning-of-sequence token and ended, or ``ids``.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepinfer_core.engine.gate.conditions import LONG_PROMPT_TOKENS
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
        long_per_source: long texts of each source; 0: conditions that need them are left out.
        long_tokens: of a long text: shorter documents are passed over, longer ones are cut.
    """

    file: str
    sha256: str
    per_source: int
    max_tokens: int
    long_per_source: int = 0
    long_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One text.

    Attributes:
        id: source and number within it, e.g. ``books/0``.
        token_ids: at least two; the first is given, the others are predicted.
    """

    id: str
    token_ids: tuple[int, ...]


def select(
    folder: Path,
    file: str,
    *,
    per_source: int,
    max_tokens: int,
    long_per_source: int = 0,
    long_tokens: int = 0,
) -> Selection:
    """A selection of a file as it is now.

    Args:
        folder: of the baseline.
        file: path relative to it.
        per_source: at least 1.
        max_tokens: at least 2.
        long_per_source: at least 0.
        long_tokens: more than ``LONG_PROMPT_TOKENS``, if there are long texts.

    Raises:
        ConfigError: the file cannot be read, or a number is too small.
    """
    if per_source < 1 or max_tokens < 2:
        raise ConfigError(
            f"asked for {per_source} documents a source of {max_tokens} tokens",
            hint="at least 1 document and 2 tokens",
        )
    if long_per_source < 0 or (long_per_source and long_tokens <= LONG_PROMPT_TOKENS):
        raise ConfigError(
            f"asked for {long_per_source} long documents a source of {long_tokens} tokens",
            hint=f"0 documents, or more than {LONG_PROMPT_TOKENS} tokens",
        )
    return Selection(
        file=file,
        sha256=hashlib.sha256(_content(folder / file)).hexdigest(),
        per_source=per_source,
        max_tokens=max_tokens,
        long_per_source=long_per_source,
        long_tokens=long_tokens,
    )


def read_samples(
    folder: Path,
    selection: Selection,
    encode: Callable[[str], list[int]],
    end_id: int,
    *,
    are_long: bool = False,
) -> tuple[Sample, ...]:
    """The texts of a selection.

    Args:
        folder: of the baseline.
        selection: what to read.
        encode: token ids of a text, the beginning-of-sequence token included.
        end_id: stands behind a text.
        are_long: the long ones.

    Raises:
        ConfigError: the file cannot be read, is not the one selected from, or has no such
            documents.
    """
    content = _content(folder / selection.file)
    if hashlib.sha256(content).hexdigest() != selection.sha256:
        raise ConfigError(
            f"{folder / selection.file} is not the file that the baseline was measured on",
            hint="bring it back, or run deepinfer eval refresh",
        )
    samples = tuple(_taken(content, folder, selection, encode, end_id, are_long=are_long))
    if not samples:
        least = f" of {selection.long_tokens} tokens" if are_long else ""
        raise ConfigError(
            f"{folder / selection.file} has no documents{least}", hint="name another file"
        )
    return samples


def _taken(
    content: bytes,
    folder: Path,
    selection: Selection,
    encode: Callable[[str], list[int]],
    end_id: int,
    *,
    are_long: bool,
) -> Iterator[Sample]:
    most = selection.long_per_source if are_long else selection.per_source
    length = selection.long_tokens if are_long else selection.max_tokens
    seen: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    for place, document in _documents(content, str(folder / selection.file)):
        source = document["source"]
        number, seen[source] = seen[source], seen[source] + 1
        if taken[source] == most:
            continue
        ids = document["ids"] if "ids" in document else [*encode(document["text"]), end_id]
        if len(ids) < 2:
            raise ConfigError(f"{place} has fewer than two tokens", hint="leave it out")
        if are_long and len(ids) < length:
            continue
        taken[source] += 1
        yield Sample(id=f"{source}/{number}", token_ids=tuple(ids[:length]))


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
