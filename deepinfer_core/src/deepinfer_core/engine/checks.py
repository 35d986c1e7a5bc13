"""How is one value of a request checked, and how does the message read?

Each function raises ``RequestError`` with the field's name, the value and the range. Booleans are
not numbers here, and NaN is not in any range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real

from deepinfer_core.errors import RequestError

__all__ = [
    "MAX_ALTERNATIVES",
    "check_alternatives",
    "check_bad_words",
    "check_flag",
    "check_integer",
    "check_logit_bias",
    "check_number",
    "check_stop_strings",
    "check_token_ids",
    "check_token_sequences",
    "shown",
]

MAX_ALTERNATIVES = 20
"""Most alternatives listed with a token, the limit that public chat interfaces have."""

MAX_STOP_STRINGS = 16
MAX_BIAS = 100.0
"""Largest logit bias in size, the limit that public chat interfaces have."""


_SHOWN_CHARACTERS = 60


def shown(value: object) -> str:
    """A value as a message shows it: short, whatever it is."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} too large to be shown"
    if len(text) > _SHOWN_CHARACTERS:
        return text[: _SHOWN_CHARACTERS - 3] + "..."
    return text


def _refuse(name: str, value: object, wanted: str) -> RequestError:
    return RequestError(f"{name} is {shown(value)}", hint=f"{name} must be {wanted}")


def check_number(name: str, value: object, wanted: str, allows: Callable[[float], bool]) -> None:
    """Refuse what is not a finite number in a range."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise _refuse(name, value, wanted)
    try:
        number = float(value)
    except OverflowError:
        raise _refuse(name, value, wanted) from None
    if not math.isfinite(number) or not allows(number):
        raise _refuse(name, value, wanted)


def check_integer(name: str, value: object, lowest: int, highest: int, *, also: str = "") -> None:
    """Refuse what is not an integer in a range; ``also`` names what else the caller admits."""
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_integer or not lowest <= int(value) <= highest:  # type: ignore[call-overload]
        extra = f", or {also}" if also else ""
        raise _refuse(name, value, f"an integer from {lowest} to {highest}{extra}")


def check_flag(name: str, value: object) -> None:
    """Refuse what is not a boolean."""
    if not isinstance(value, bool):
        raise _refuse(name, value, "True or False")


def check_alternatives(name: str, value: object) -> None:
    """Refuse what is neither a boolean, None nor a number of alternatives."""
    if value is not None and not isinstance(value, bool):
        check_integer(name, value, 0, MAX_ALTERNATIVES, also="a boolean")


def check_stop_strings(name: str, value: object) -> tuple[str, ...]:
    """Bring one text or several to a tuple without repetitions."""
    wanted = f"a text or up to {MAX_STOP_STRINGS} texts, none empty"
    texts = _texts(name, value, wanted)
    if len(texts) > MAX_STOP_STRINGS:
        raise _refuse(name, texts, wanted)
    return tuple(dict.fromkeys(texts))


def check_bad_words(name: str, value: object) -> tuple[str, ...]:
    """The same without a limit; a text of blanks alone is no word."""
    wanted = "a text or several texts, none empty or blank"
    texts = _texts(name, value, wanted)
    if not all(text.strip() for text in texts):
        raise _refuse(name, texts, wanted)
    return tuple(dict.fromkeys(texts))


def _texts(name: str, value: object, wanted: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, Iterable) or isinstance(value, Mapping | bytes):
        raise _refuse(name, value, wanted)
    texts = tuple(value)
    if not all(isinstance(text, str) and text for text in texts):
        raise _refuse(name, texts, wanted)
    return texts


def check_token_ids(name: str, value: object) -> tuple[int, ...]:
    """Bring token ids of any integer type to a tuple; their range is the model's affair."""
    wanted = "a sequence of token ids, each an integer >= 0"
    if value is None:
        return ()
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise _refuse(name, value, wanted)
    if _is_plain(value):  # a prompt of a million tokens is checked in milliseconds
        return tuple(value)
    found = []
    for token in value:
        if not isinstance(token, Integral) or isinstance(token, bool) or int(token) < 0:
            raise _refuse(name, token, wanted)
        found.append(int(token))
    return tuple(found)


def check_token_sequences(name: str, value: object) -> tuple[tuple[int, ...], ...]:
    """Bring sequences of token ids to tuples without repetitions; none may be empty."""
    wanted = "a sequence of sequences of token ids, none empty"
    if value is None:
        return ()
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise _refuse(name, value, wanted)
    items = list(value)
    if all(map(_is_plain, items)):  # a service bans a thousand tokens with every request
        return tuple(dict.fromkeys(map(tuple, items)))
    found = [check_token_ids(f"{name}[{place}]", item) for place, item in enumerate(items)]
    if not all(found):
        raise _refuse(f"{name}[{found.index(())}]", (), wanted)
    return tuple(dict.fromkeys(found))


def _is_plain(item: object) -> bool:
    """Whether something is a sequence of token ids without a doubt."""
    if type(item) not in (tuple, list) or not item:
        return False
    return set(map(type, item)) == {int} and min(item) >= 0  # type: ignore[call-overload]


def check_logit_bias(name: str, value: object) -> tuple[tuple[int, float], ...]:
    """Bring a mapping, or pairs, of token ids and biases to pairs in the order of the ids."""
    wanted = "a mapping of token ids to numbers"
    if value is None:
        return ()
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise _refuse(name, value, wanted)
    pairs = list(value.items() if isinstance(value, Mapping) else value)
    found: dict[int, float] = {}
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise _refuse(name, pair, wanted)
        [token] = check_token_ids(name, [pair[0]])
        wanted_bias = f"a number from {-MAX_BIAS:g} to {MAX_BIAS:g}"
        check_number(f"{name}[{token}]", pair[1], wanted_bias, lambda x: abs(x) <= MAX_BIAS)
        if token in found:
            raise _refuse(name, pairs, "without a token that is named twice")
        found[token] = float(pair[1])
    return tuple(sorted(found.items()))
