"""How do the sampler's kernels read logits, and turn them into whole-number weights?

Probabilities are fp64. A weight is ``floor(2^31 * p)``; sums of weights are whole numbers, so that
no order of additions matters. A thread reads ``SEGMENT_TOKENS / threads`` logits of a segment, in
vectors that lie ``threads`` vectors apart.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.sampler import SEGMENT_TOKENS, SHORT_TOKENS

__all__ = [
    "ACCEPTANCE_CASE",
    "FRESH_CASE",
    "RESIDUAL_CASE",
    "THREADS",
    "VECTOR",
    "VECTORS",
    "WEIGHT_ONE",
    "draw_point",
    "is_weightless",
    "load_segment",
    "power",
    "scale_of",
    "survives_cut",
    "token_of",
    "uniform_bits",
    "weight",
]

THREADS = 256
"""Threads that share a segment."""

VECTOR = 4
VECTORS = SEGMENT_TOKENS // (THREADS * VECTOR)
"""Vectors of a thread."""

WEIGHT_ONE = 2.0**31
"""The weight of probability 1."""

FRESH_CASE, RESIDUAL_CASE, ACCEPTANCE_CASE = 0, 1, 2
"""Which of a position's random numbers: of an ordinary draw, of the draw of a token that takes a
rejected draft's place, and of the test of a draft."""

_WEIGHTLESS = -21.6
"""31 natural logarithms of 2, and a little."""

_GOLDEN, _FIRST_MIX, _SECOND_MIX = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def token_of(segment: Any, vector: int, place: Any, thread: Any) -> Any:
    """The token that a thread holds at a place of one of its vectors."""
    return segment * SEGMENT_TOKENS + (vector * THREADS + thread) * VECTOR + place


@T.macro
def load_segment(
    logits_RV: T.Tensor, x: T.LocalBuffer, row: Any, segment: Any, vocabulary: int
) -> None:
    """Read a thread's logits; what is no number below infinity becomes 0, what is absent -inf."""
    thread = T.get_thread_binding()
    for vector in T.unroll(VECTORS):
        first = segment * SEGMENT_TOKENS + (vector * THREADS + thread) * VECTOR
        if vocabulary % VECTOR == 0 and logits_RV.dtype == "float32":
            if first < vocabulary:
                for place in T.vectorized(VECTOR):
                    x[vector * VECTOR + place] = logits_RV[row, first + place]
            else:
                for place in T.vectorized(VECTOR):
                    x[vector * VECTOR + place] = -T.infinity(x.dtype)
        else:
            for place in T.unroll(VECTOR):
                x[vector * VECTOR + place] = -T.infinity(x.dtype)
                if first + place < vocabulary:
                    x[vector * VECTOR + place] = logits_RV[row, first + place]


def scale_of(temperature: Any, top_p: Any, top_k: Any) -> Any:
    """``1 / temperature`` in fp64, or 0 for a row that needs no sum over the vocabulary.

    That is a greedy one, or one that top-k alone cuts to a few tokens.
    """
    is_short = T.And(
        T.And(top_k >= T.int64(0), top_k <= T.int64(SHORT_TOKENS)), top_p >= T.float32(1)
    )
    is_idle = T.Or(temperature <= T.float32(0), is_short)
    inverse = T.float64(1) / T.cast(T.if_then_else(is_idle, T.float32(1), temperature), "float64")
    return T.if_then_else(is_idle, T.float64(0), inverse)


def power(x: Any, peak: Any, inverse_temperature: Any) -> Any:
    """``exp((x - peak) / temperature)`` in fp64."""
    distance = T.cast(x, "float64") - T.cast(peak, "float64")
    return T.exp(distance * inverse_temperature)


def weight(share: Any, inverse_total: Any) -> Any:
    """``floor(2^31 * share / total)`` as int64."""
    return T.cast(T.floor(share * inverse_total * T.float64(WEIGHT_ONE)), "int64")


def uniform_bits(seed: Any, position: Any, case: int = FRESH_CASE) -> Any:
    """The 53 bits of a draw, int64; see ``deepinfer_core.reference.random_numbers``."""
    three, golden = T.uint64(3), T.uint64(_GOLDEN)
    s = (T.cast(position, "uint64") * three + T.uint64(case)) * golden
    z = T.cast(seed, "uint64") + (s ^ (s << T.uint64(13))) + golden
    z = (z ^ (z >> T.uint64(30))) * T.uint64(_FIRST_MIX)
    z = (z ^ (z >> T.uint64(27))) * T.uint64(_SECOND_MIX)
    return T.cast((z ^ (z >> T.uint64(31))) >> T.uint64(11), "int64")


def draw_point(bits: Any, total: Any) -> Any:
    """``floor(bits * total / 2^53)`` without leaving int64."""
    lower = ((bits & T.int64((1 << 27) - 1)) * total) >> T.int64(27)
    return ((bits >> T.int64(27)) * total + lower) >> T.int64(26)


def is_weightless(x: Any, peak: Any, inverse_temperature: Any) -> Any:
    """Whether a token's weight must be 0, since the peak alone has more than 2^31 times as much."""
    distance = T.cast(x, "float64") - peak
    return distance * inverse_temperature < T.float64(_WEIGHTLESS)


def survives_cut(x: Any, token: Any, cut_value: Any, cut_token: Any) -> Any:
    """Whether a token is no later than where a row is cut."""
    value = T.cast(x, "float64")
    is_later = T.Or(value < cut_value, T.And(value == cut_value, token > cut_token))
    return T.And(T.Not(is_later), value > -T.infinity("float64"))
