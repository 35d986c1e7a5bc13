"""Where do prompts on the command line come from?

An argument, standard input, a text file (one prompt), a JSON-lines file (one prompt a line) or
token ids. A byte order mark of UTF-8 in front of a file or of standard input is no part of a
prompt. Problems of the source are usage errors and name the file and the line.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from deepinfer_core.cli.parser import UsageError
from deepinfer_core.model.config_reading import unique_keys

__all__ = [
    "Prompt",
    "add_prompt_arguments",
    "parse_token_ids",
    "prompts_from",
    "read_prompt_file",
    "read_token_file",
]

Prompt = str | list[int]

_BYTE_ORDER_MARK = "\ufeff"


def add_prompt_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that give prompts."""
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", help="text; - reads standard input")
    parser.add_argument(
        "--prompt-file",
        type=Path,
        metavar="FILE",
        help="a text file is one prompt, a .jsonl file has one a line: "
        '{"prompt": "..."} or {"token_ids": [...]}',
    )
    parser.add_argument(
        "--token-ids",
        metavar="IDS",
        help="the prompt as token ids, e.g. 0,17,4; nothing is added, no beginning either",
    )


def prompts_from(args: argparse.Namespace) -> list[Prompt]:
    """The prompts that those options give: texts, or token ids.

    Raises:
        UsageError: none or several sources, or a source that cannot be read.
    """
    given = [args.prompt is not None, args.prompt_file is not None, args.token_ids is not None]
    if sum(given) != 1:
        raise UsageError(
            "no prompt was given" if not any(given) else "more than one source of prompts",
            hint="give PROMPT, - for standard input, --prompt-file or --token-ids",
        )
    if args.token_ids is not None:
        return [parse_token_ids(args.token_ids, "--token-ids")]
    if args.prompt_file is not None:
        return read_prompt_file(args.prompt_file)
    return [_read_stdin() if args.prompt == "-" else args.prompt]


def parse_token_ids(text: str, source: str) -> list[int]:
    """Read ids between commas or blanks, with or without brackets.

    Raises:
        UsageError: something else stands there.
    """
    parts = text.strip().removeprefix("[").removesuffix("]").replace(",", " ").split()
    try:
        return [int(part) for part in parts]
    except ValueError as error:
        raise UsageError(
            f"{source} holds something that is no token id: {error}",
            hint="token ids are integers, e.g. 0,17,4",
        ) from error


def read_token_file(path: Path) -> list[int]:
    """Read a JSON list of token ids.

    Raises:
        UsageError: the file cannot be read, or holds something else.
    """
    try:
        found = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} is not JSON: {error}", hint="write a list of token ids"
        ) from error
    return _ids(found, str(path))


def _read_stdin() -> str:
    if sys.stdin is None:
        raise UsageError("standard input is closed", hint="give PROMPT or --prompt-file")
    try:
        return _without_last_newline(sys.stdin.read().removeprefix(_BYTE_ORDER_MARK))
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input is not text: {error}", hint="send UTF-8") from error


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror or error}", hint="name a readable file"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text: {error}", hint="write it in UTF-8") from error


def read_prompt_file(path: Path) -> list[Prompt]:
    """Read the prompts of a file: one of a text file, one a line of a JSON-lines file.

    Raises:
        UsageError: the file cannot be read, or a line is no prompt.
    """
    text = _read_text(path)
    if path.suffix != ".jsonl":
        return [_without_last_newline(text)]
    # Only line feeds end a line: JSON text may hold other separators.
    lines = enumerate(text.split("\n"), start=1)
    prompts = [_line(line, f"{path}:{number}") for number, line in lines if line.strip()]
    if not prompts:
        raise UsageError(f"{path} holds no prompt", hint='each line is {"prompt": "..."}')
    return prompts


def _line(line: str, source: str) -> Prompt:
    try:
        found = json.loads(line, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{source} is not JSON: {error}", hint=_LINE_HINT) from error
    if not isinstance(found, dict):
        raise UsageError(f"{source} is not a prompt", hint=_LINE_HINT)
    known = {"prompt", "token_ids"}
    if unknown := sorted(found.keys() - known):
        raise UsageError(f"{source} has the unknown key {unknown[0]!r}", hint=_LINE_HINT)
    if len(found) != 1:
        raise UsageError(f"{source} is not a prompt", hint=_LINE_HINT)
    if "token_ids" in found:
        return _ids(found["token_ids"], source)
    if not isinstance(found["prompt"], str):
        raise UsageError(f"{source}: prompt is no text", hint=_LINE_HINT)
    return found["prompt"]


_LINE_HINT = 'each line is {"prompt": "..."} or {"token_ids": [...]}'


def _ids(found: Any, source: str) -> list[int]:
    is_list = isinstance(found, list)
    if not is_list or not all(type(token) is int for token in found):
        raise UsageError(f"{source} is no list of token ids", hint="token ids are integers")
    return list(found)


def _without_last_newline(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r")
