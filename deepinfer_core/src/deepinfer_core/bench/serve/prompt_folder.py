"""Which scripts does a folder of JSON lines hold?

One JSON object a line, told apart by ``kind``: ``chat`` and ``long_document`` have ``user_turns``
(and ``document``, which stands before the first of them), ``tool_call`` and the structured kinds
have ``messages``, ``tool_call_multi_turn`` has turns that are lists of messages or of texts,
``agent_trace`` is a recorded conversation that is asked again at each of its user's and tools'
messages, and ``completion`` has a ``prompt``. ``system`` and ``toolsets`` name entries of
``systems.json`` and ``toolsets.json`` beside them. Other keys are notes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deepinfer_core.bench.serve.scripts import Message, Script
from deepinfer_core.errors import ConfigError

__all__ = ["read_folder"]

Line = Mapping[str, Any]
Turns = list[list[Message]]


def read_folder(folder: Path, kinds: Sequence[str] = ()) -> list[Script]:
    """Read the scripts of all files.

    Args:
        folder: with at least one ``*.jsonl``.
        kinds: of lines that are wanted; empty: all of them.

    Raises:
        ConfigError: a file cannot be read, a line is none of the forms above, or none is wanted.
    """
    files = sorted(folder.glob("*.jsonl"))
    named = {name: _named(folder / f"{name}.json") for name in ("systems", "toolsets")}
    found = [script for file in files for script in _scripts(file, named)]
    chosen = [script for script in found if not kinds or script.kind in kinds]
    if not chosen:
        there = ", ".join(sorted({script.kind for script in found})) or "none"
        raise ConfigError(
            f"{folder} holds no prompts" + (f" of kind {', '.join(kinds)}" if kinds else ""),
            hint=f"kinds that are there: {there}",
        )
    return chosen


def _named(file: Path) -> Mapping[str, Any]:
    return dict(_parsed(_text(file), str(file))) if file.exists() else {}


def _scripts(file: Path, named: Mapping[str, Mapping[str, Any]]) -> list[Script]:
    scripts = []
    # Only line feeds end a line: JSON text may hold other separators.
    for number, text in enumerate(_text(file).split("\n"), start=1):
        if not text.strip():
            continue
        source = f"{file}:{number}"
        line = _parsed(text, source)
        try:
            scripts.append(_script(line, named))
        except (KeyError, TypeError, IndexError) as error:
            raise ConfigError(
                f"{source} is no prompt: {type(error).__name__} {error}",
                hint="kinds and their keys: docs/benchmarks.md",
            ) from error
    return scripts


def _script(line: Line, named: Mapping[str, Mapping[str, Any]]) -> Script:
    turns = _TURNS[line["kind"]](line)
    if "system" in line:
        turns[0].insert(0, {"role": "system", "content": named["systems"][line["system"]]})
    tools = [*line.get("tools", ())]
    for name in line.get("toolsets", ()):
        tools += named["toolsets"][name]
    fields: dict[str, Any] = {"tools": tools} if tools else {}
    if "response_format" in line:
        fields["response_format"] = line["response_format"]
    if "regex" in line:
        fields["response_format"] = {"type": "regex", "regex": line["regex"]}
    if not turns or not all(turns):
        raise IndexError("a turn without messages")
    return Script(
        name=str(line["id"]),
        kind=line["kind"],
        turns=tuple(tuple(turn) for turn in turns),
        fields=fields,
    )


def _user(content: str) -> Message:
    return {"role": "user", "content": content}


def _texts(line: Line) -> Turns:
    return [[_user(text)] for text in line["user_turns"]]


def _document(line: Line) -> Turns:
    first, *others = line["user_turns"]
    return [[_user(f"{line['document']}\n\n{first}")], *([_user(text)] for text in others)]


def _message_lists(line: Line) -> Turns:
    """Turns in which nothing new is said are left out."""
    return [
        [_user(said) if isinstance(said, str) else said for said in turn]
        for turn in line["user_turns"]
        if turn
    ]


def _trace(line: Line) -> Turns:
    """Cut behind every message that a service would have answered."""
    turns: Turns = [[]]
    for message in line["messages"]:
        if message["role"] == "assistant" and turns[-1]:
            turns.append([])
        turns[-1].append(message)
    return turns if turns[-1][-1]["role"] != "assistant" else turns[:-1]


def _single(line: Line) -> Turns:
    return [list(line["messages"])]


_TURNS: Mapping[str, Callable[[Line], Turns]] = {
    "chat": _texts,
    "long_document": _document,
    "tool_call": _single,
    "tool_call_multi_turn": _message_lists,
    "agent_trace": _trace,
    "json_schema": _single,
    "regex": _single,
    "completion": lambda line: [[_user(line["prompt"])]],
}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{file} cannot be read: {error}", hint="give a folder of JSON-lines files in UTF-8"
        ) from error


def _parsed(text: str, source: str) -> Line:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{source} is not JSON: {error}", hint="one object a line") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{source} is no JSON object", hint="one object a line")
    return found
