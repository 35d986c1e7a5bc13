"""Does the text of a body have so few values that reading it holds up nobody?

Who reads JSON keeps the interpreter to itself until it is done, wherever it runs, and a million
small values take half a second. So a text that may have too many is looked at first, in steps after
which others get their turn. What is refused here has too many for certain; what is taken is counted
once more when it is data.
"""

from __future__ import annotations

from deepinfer_core.errors import RequestError

__all__ = ["MOST_VALUES", "check_values", "too_many_values"]

MOST_VALUES = 1 << 17
"""Members of objects, and items of lists that are no numbers."""

_MOST_ITEMS = 1 << 21
"""Values of any kind; so many numbers are two prompts of the longest that there are."""

_SIGNS = 3
"""Quotes, colons and brackets that a value may have: its name, its colon, and the value itself."""


def check_values(body: bytes) -> None:
    """Look whether a text has too many values.

    Raises:
        RequestError: it has.
    """
    # A text has no more values than these signs.
    if body.count(b",") + body.count(b"{") + body.count(b"[") <= MOST_VALUES:
        return
    signs = items = place = 0
    while True:
        start = body.find(b'"', place)
        stop = len(body) if start < 0 else start
        items += body.count(b",", place, stop)
        signs += sum(body.count(sign, place, stop) for sign in (b":", b"{", b"["))
        if signs > _SIGNS * MOST_VALUES + 1 or items > _MOST_ITEMS:
            raise too_many_values()
        if start < 0:
            return
        signs += 1
        place = _behind_string(body, start)


def too_many_values() -> RequestError:
    """The error that says so."""
    return RequestError(
        f"the body has more than {MOST_VALUES} values, numbers in lists not counted, "
        f"or more than {_MOST_ITEMS} with them"
    )


def _behind_string(body: bytes, start: int) -> int:
    """Where the string ends whose opening quote is at ``start``."""
    quote = start
    while True:
        end = body.find(b'"', quote + 1)
        if end < 0:
            return len(body)
        between = body[quote + 1 : end]
        if (len(between) - len(between.rstrip(b"\\"))) % 2 == 0:
            return end + 1
        quote = end
