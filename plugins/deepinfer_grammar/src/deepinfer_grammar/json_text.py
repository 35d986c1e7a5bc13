"""What does a JSON text hold, and where does it stop being one?"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from deepinfer_grammar.errors import TextFault

__all__ = ["MAX_DEPTH", "MAX_DIGITS", "exact_number", "heaviest", "parsed_json", "written_number"]

MAX_DEPTH = 200
"""Most values inside each other."""

MAX_DIGITS = 400
"""Most digits of a number with a point or an exponent, written without exponent."""

_INTEGER = re.compile(r"\d+")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{\]}]|-?Infinity|NaN', re.DOTALL)
_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d[-+.\deE]*', re.DOTALL)


class _NoNumber(Exception):
    """A constant that Python reads as a number and JSON has not."""


class _TooLong(Exception):
    """A number of too many digits, as it is written."""


def exact_number(text: str) -> Decimal:
    """A number with a point or an exponent."""
    try:
        number = Decimal(text)
    except InvalidOperation as error:  # no exponent is so large
        raise _TooLong(text) from error
    if number and abs(number.adjusted()) > MAX_DIGITS:
        raise _TooLong(text)
    return number


def written_number(number: Decimal) -> str:
    """All of its digits, without exponent and without zeros behind the last one that counts."""
    text = format(number, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def parsed_json(text: str, what: str, number: Callable[[str], Any] = exact_number) -> Any:
    """The value of a text.

    Args:
        text: JSON.
        what: a name of it for messages.
        number: makes a value of a number that is no integer.

    Raises:
        TextFault: it is no JSON, over ``MAX_DEPTH`` values stand inside each other in it, or a
            number is too long.
    """
    try:
        value = json.loads(text, parse_float=number, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise TextFault(f"{what} is not JSON: {error.msg}", error.pos) from error
    except ValueError as error:  # Python reads no longer ones
        longest = max(_INTEGER.finditer(text), key=lambda found: len(found[0]))
        raise TextFault(
            f"{what} has an integer of {len(longest[0])} digits", longest.start()
        ) from error
    except RecursionError as error:
        raise _too_deep(text, what) from error
    except _TooLong as error:
        name = str(error)
        place = next(found.start() for found in _NUMBER.finditer(text) if found[0] == name)
        raise TextFault(f"{what} has a number of over {MAX_DIGITS} digits", place) from error
    except _NoNumber as error:
        name = str(error)
        place = next(found.start() for found in _TOKEN.finditer(text) if found[0] == name)
        raise TextFault(f"{what} is not JSON: it holds {name}", place) from error
    if _is_deeper(value, MAX_DEPTH):
        raise _too_deep(text, what)
    return value


def heaviest(text: str) -> tuple[str | int, ...]:
    """Path of the value that most of a JSON text is, as deep as one is; empty if it is no JSON."""
    try:
        value, path = json.loads(text), []
        size = len(text)
        while isinstance(value, dict | list):
            named = value.items() if isinstance(value, dict) else enumerate(value)
            sizes = ((len(json.dumps(inner)), step) for step, inner in named)
            large, step = max(sizes, default=(0, ""), key=lambda one: one[0])
            if 2 * large <= size:
                break
            value, size = value[step], large  # type: ignore[index]
            path.append(step)
    except (ValueError, RecursionError):
        return ()
    return tuple(path)


def _refuse(name: str) -> Any:
    raise _NoNumber(name)


def _is_deeper(value: Any, depth: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth < 0 or any(_is_deeper(one, depth - 1) for one in inner)


def _too_deep(text: str, what: str) -> TextFault:
    """The fault of a text in which a bracket opens that is one too many."""
    depth = place = 0
    for found in _TOKEN.finditer(text):
        depth += (found[0] in "[{") - (found[0] in "]}")
        place = found.start()
        if depth > MAX_DEPTH:
            break
    return TextFault(f"{what} has over {MAX_DEPTH} values inside each other", place)
