"""How does a block find the best of many numbers exactly? Parts that several kernels use.

Scores are compared as integers that order like them. A pass counts how many candidates have each
value of a digit and keeps the digit that holds the last one wanted; the next pass looks at the
candidates with that digit only. After the last digit of the score, digits of the position decide
among equal ones. Only counts are added up, so that the order of atomic additions makes no
difference.
"""

from typing import Any

import tilelang.language as T

__all__ = [
    "ABSENT",
    "BINS",
    "HIGHEST",
    "LAST_PLACE",
    "LINE",
    "LINES",
    "PASSES",
    "boundary",
    "candidate_digit",
    "clear",
    "order_of",
    "refined",
    "value_of",
]

_BITS = 11
BINS = 1 << _BITS
"""Values of a digit."""

LINE = 64
LINES = BINS // LINE
"""Counts are kept in so many lines."""

_HIGH_SHIFT = 32 - _BITS
_LOW_BITS = 32 - 2 * _BITS
PASSES = (0, 1, 2, 3, 4)
"""Three digits of the score, then two of the place among equal scores."""

LAST_PLACE = (1 << 2 * _BITS) - 1
"""Positions count down from here: of equal scores the one with the higher number is better."""

ABSENT = -0x7F800001
"""The integer of minus infinity, which is never chosen."""

HIGHEST = 0x7F800000
"""The integer of infinity; what is above is not a number."""


def order_of(x: Any) -> Any:
    """The int32 number that orders like an fp32 number; the two zeros are equal, NaN is absent."""
    bits = T.reinterpret(x, "int32")
    is_zero = (bits & 0x7FFFFFFF) == 0
    order = T.if_then_else(is_zero, 0, bits ^ ((bits >> 31) & 0x7FFFFFFF))
    return T.if_then_else(order > HIGHEST, ABSENT, order)


def value_of(order: Any) -> Any:
    """The fp32 number of an int32 order."""
    return T.reinterpret(order ^ ((order >> 31) & 0x7FFFFFFF), "float32")


def candidate_digit(
    number: int, order: Any, place: Any, least: Any, least_place: Any
) -> tuple[Any, Any]:
    """Whether a score takes part in a pass, and its digit there.

    Args:
        number: of the pass.
        order: int32 number of the score.
        place: ``LAST_PLACE`` minus its position.
        least: the digits of the score that earlier passes found, with zeros behind them.
        least_place: the same of the place.
    """
    high = order >> _HIGH_SHIFT
    if number == 0:
        return order > ABSENT, high + BINS // 2
    if number == 1:
        return T.And(order > ABSENT, high == least >> _HIGH_SHIFT), (order >> _LOW_BITS) & (
            BINS - 1
        )
    if number == 2:
        is_candidate = T.And(order > ABSENT, order >> _LOW_BITS == least >> _LOW_BITS)
        return is_candidate, order & ((1 << _LOW_BITS) - 1)
    if number == 3:
        return order == least, place >> _BITS
    return T.And(order == least, place >> _BITS == least_place >> _BITS), place & (BINS - 1)


def refined(number: int, digit: Any, least: Any, least_place: Any) -> tuple[Any, Any]:
    """``least`` and ``least_place`` with the digit that a pass found."""
    if number == 0:
        return (digit - BINS // 2) << _HIGH_SHIFT, least_place
    if number == 1:
        return least | (digit << _LOW_BITS), least_place
    if number == 2:
        return least | digit, least_place
    if number == 3:
        return least, digit << _BITS
    return least, least_place | digit


@T.macro
def clear(count_LC: T.SharedBuffer, state: T.SharedBuffer, threads: int) -> None:
    """Set all counts to zero, and let nothing be found."""
    thread = T.get_thread_binding()
    T.sync_threads()
    for i in T.serial(BINS // threads):
        count_LC[(i * threads + thread) // LINE, (i * threads + thread) % LINE] = 0
    if thread < 3:
        state[thread] = -1
    T.sync_threads()


@T.macro
def boundary(
    count_LC: T.SharedBuffer,
    from_here_LC: T.SharedBuffer,
    of_line_L: T.SharedBuffer,
    from_line_L: T.SharedBuffer,
    state: T.SharedBuffer,
    wanted: T.int32,
    threads: int,
) -> None:
    """Find the digit that holds the ``wanted``-th best.

    The three buffers behind the counts are worked in: as large as the counts, as their lines, and
    one more. ``state`` becomes that digit, how many are above it, and how many have it; it stays as
    it is if there are fewer candidates.
    """
    thread = T.get_thread_binding()
    T.sync_threads()
    T.cumsum(count_LC, from_here_LC, dim=1, reverse=True)
    T.sync_threads()
    if thread < LINES:
        of_line_L[thread] = from_here_LC[thread, 0]
    T.sync_threads()
    T.cumsum(of_line_L, dim=0, reverse=True)
    T.sync_threads()
    if thread < LINES:
        from_line_L[thread] = of_line_L[thread]
    if thread == LINES:
        from_line_L[thread] = 0
    T.sync_threads()
    for i in T.serial(BINS // threads):
        line = (i * threads + thread) // LINE
        place = (i * threads + thread) % LINE
        above = from_here_LC[line, place] + from_line_L[line + 1] - count_LC[line, place]
        if above < wanted and wanted <= above + count_LC[line, place]:
            state[0] = i * threads + thread
            state[1] = above
            state[2] = count_LC[line, place]
    T.sync_threads()
