"""How does a block find the token at which a prefix of a row's order ends?

A pass adds up the sizes of tokens, 1 or weights, in 2048 bins, and ``find`` tells the bin in which
their running sum exceeds a limit. Bins are first stretches of the logits over temperature, below
the peak: neighbouring tokens of a warp rarely meet in one. Where that is not fine enough, they are
digits of a key that orders like falling logits, then of the token.
"""

from typing import Any

import tilelang.language as T

__all__ = [
    "CANDIDATES",
    "LEVELS",
    "LINE",
    "LINES",
    "THREADS",
    "UNROLL",
    "add",
    "bin_of",
    "clear",
    "digit_of",
    "find",
    "has_prefix",
    "key_of",
    "load",
    "longer_key",
    "longer_token",
    "token_of",
    "value_of",
]

THREADS = 1024
UNROLL = 8
CANDIDATES = 1024
"""Tokens that can be looked at one by one, one a thread."""

_BITS = 11
_BINS = 1 << _BITS
_BINS_PER_UNIT = 90.0
"""A token 21.5 below the peak has weight 0, which is bin 1935."""

LINE = 32
LINES = _BINS // LINE

LEVELS = 8
"""Five digits of the key and its last 9 bits, then two digits of the token."""

_TOP_SHIFT = 64 - _BITS
_LAST_BITS = 64 - 5 * _BITS
_LARGEST = (1 << 63) - 1


@T.macro
def clear(sums: T.SharedBuffer, count: T.SharedBuffer) -> None:
    """Set all bins to zero."""
    thread = T.get_thread_binding()
    T.sync_threads()
    for i in T.serial(_BINS // THREADS):
        sums[(i * THREADS + thread) // LINE, (i * THREADS + thread) % LINE] = T.uint32(0)
    if thread == 0:
        count[0] = 0
    T.sync_threads()


def token_of(trip: Any, place: Any) -> Any:
    """The token that a thread reads."""
    return (trip * UNROLL + place) * THREADS + T.get_thread_binding()


@T.macro
def load(logits_RV: T.Tensor, x: T.LocalBuffer, row: Any, trip: Any, vocabulary: int) -> None:
    """Read ``UNROLL`` logits of a thread; absent ones are -inf."""
    for place in T.unroll(UNROLL):
        x[place] = -T.infinity(x.dtype)
        if token_of(trip, place) < vocabulary:
            x[place] = logits_RV[row, token_of(trip, place)]


def bin_of(x: Any, peak: Any, inverse: Any) -> Any:
    """The bin of a logit above -inf; never decreases where logits fall."""
    dtype = x.dtype
    scale = T.cast(inverse * T.float64(_BINS_PER_UNIT), dtype)
    place = (T.cast(peak, dtype) - x) * scale
    return T.cast(T.min(place, T.cast(_BINS - 1, dtype)), "int32")


@T.macro
def add(sums: T.SharedBuffer, digit: Any, weight: Any) -> None:
    """Add to a bin."""
    if weight > T.int64(0):
        T.atomic_add(sums[digit // LINE, digit % LINE], T.cast(weight, "uint32"))


@T.macro
def find(sums: T.SharedBuffer, line_sums: T.SharedBuffer, digit: T.Ref, rest: T.Ref) -> None:
    """Set ``digit`` to the bin whose running sum exceeds ``rest``, or -1; take off what is before.

    Every thread finds the same.
    """
    thread = T.get_thread_binding()
    sum_ = T.alloc_var("int64")
    line = T.alloc_var("int32")
    T.sync_threads()
    if thread < LINES:
        sum_ = T.int64(0)
        for i in T.serial(LINE):
            sum_ += T.cast(sums[thread, i], "int64")
        line_sums[thread] = sum_
    T.sync_threads()
    line = -1
    digit = -1
    for i in T.serial(LINES):
        if line < 0:
            if rest < line_sums[i]:
                line = i
            else:
                rest -= line_sums[i]
    if line >= 0:
        for i in T.serial(LINE):
            if digit < 0:
                sum_ = T.cast(sums[line, i], "int64")
                if rest < sum_:
                    digit = line * LINE + i
                else:
                    rest -= sum_
    T.sync_threads()


def key_of(x: Any) -> Any:
    """A uint64 key that grows where logits fall; the two zeros have one."""
    value = T.cast(x, "float64")
    bits = T.reinterpret(T.if_then_else(value == T.float64(0), T.float64(0), value), "uint64")
    return T.if_then_else(value < T.float64(0), bits, T.uint64(_LARGEST) - bits)


def value_of(key: Any) -> Any:
    """The logit of a key."""
    is_negative = key > T.uint64(_LARGEST)
    return T.reinterpret(T.if_then_else(is_negative, key, T.uint64(_LARGEST) - key), "float64")


def _shift_of(level: Any) -> Any:
    """How far a digit of the key is from its end."""
    return T.cast(T.max(_TOP_SHIFT - _BITS * level, 0), "uint64")


def digit_of(level: Any, key: Any, token: Any) -> Any:
    """The digit that a level looks at."""
    mask = T.if_then_else(level == 5, (1 << _LAST_BITS) - 1, _BINS - 1)
    of_key = T.cast((key >> _shift_of(level)) & T.cast(mask, "uint64"), "int32")
    of_token = T.if_then_else(level == 6, token >> _BITS, token & (_BINS - 1))
    return T.if_then_else(level < 6, of_key, of_token)


def has_prefix(level: Any, key: Any, token: Any, key_prefix: Any, token_prefix: Any) -> Any:
    """Whether a token has the digits that were found at earlier levels."""
    above = T.if_then_else(level < 6, _TOP_SHIFT + _BITS - _BITS * level, 0)
    above = T.if_then_else(level == 5, _LAST_BITS, T.min(above, 63))
    shift = T.cast(above, "uint64")
    is_key = T.Or(level == 0, (key >> shift) == (key_prefix >> shift))
    return T.And(is_key, T.Or(level < 7, token >> _BITS == token_prefix >> _BITS))


def longer_key(level: Any, prefix: Any, digit: Any) -> Any:
    """A prefix of the key with the digit of a level."""
    longer = prefix | (T.cast(T.max(digit, 0), "uint64") << _shift_of(level))
    return T.if_then_else(level < 6, longer, prefix)


def longer_token(level: Any, prefix: Any, digit: Any) -> Any:
    """A prefix of the token with the digit of a level."""
    longer = T.if_then_else(level == 6, digit << _BITS, prefix | digit)
    return T.if_then_else(level < 6, prefix, longer)
