"""How does a block gather the best tokens of a row without reading all of it again?

The logits of a row are known by the peaks of their groups. At least ``wanted`` logits are no lower
than the ``wanted``-th best of the peaks of pairs of groups, and few others are: only the pairs that
reach it are read. What is gathered is a beginning of the row's order, but stands in no order.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.sampler import CANDIDATES, SEGMENT_TOKENS

from deepinfer_nvidia.kernels import token_law as law

__all__ = ["PAIR_TOKENS", "STEP", "THREADS", "gather_best", "is_before"]

THREADS = CANDIDATES
"""Of a block that works on a row: one a candidate."""

PAIR_TOKENS = 256
_WARPS = THREADS // 32
_PAIRS = SEGMENT_TOKENS // PAIR_TOKENS
STEP = 8
"""Pairs or candidates that a thread compares with at once; divides the pairs of a segment."""

_STRETCHES = law.VECTORS
"""Places of a segment at which a pair has 32 neighbouring tokens."""


def is_before(value: Any, token: Any, other_value: Any, other_token: Any) -> Any:
    """Whether a token comes earlier: larger logit, or the same and a lower id."""
    return T.Or(value > other_value, T.And(value == other_value, token < other_token))


@T.macro
def gather_best(
    logits_RV: T.Tensor,
    group_RG: T.Tensor,
    row: Any,
    wanted: Any,
    vocabulary: int,
    value: T.SharedBuffer,
    token: T.SharedBuffer,
    threshold: T.SharedBuffer,
    counts: T.SharedBuffer,
) -> None:
    """Gather all tokens that are no worse than some ``threshold``.

    Args:
        logits_RV: read where needed.
        group_RG: peaks of groups.
        row: of the block.
        wanted: at least so many, if there are as many above -inf; 0 gathers none.
        vocabulary: V.
        value: fp64 logits of the gathered tokens, and -inf behind them.
        token: int32 tokens, and V behind them.
        threshold: one number; -inf if all tokens above -inf are gathered.
        counts: of gathered tokens, of which only ``CANDIDATES`` are kept, and of pairs.
    """
    thread = T.get_thread_binding()
    dtype = logits_RV.dtype
    pairs = group_RG.shape[1] // 2
    rounds = -(-int(pairs) // THREADS)
    peak = T.alloc_shared((pairs,), dtype)
    hot = T.alloc_shared((pairs,), "int32")
    x = T.alloc_local((_STRETCHES,), dtype)
    mine = T.alloc_var(dtype)
    rank = T.alloc_var("int32")
    slot = T.alloc_var("int32")
    trips = T.alloc_var("int32")
    first = T.alloc_var("int32")

    value[thread] = -T.infinity("float64")
    token[thread] = vocabulary
    if thread == 0:
        threshold[0] = -T.infinity(dtype)
        counts[0] = 0
        counts[1] = 0
    for i in T.unroll(rounds):
        if i * THREADS + thread < pairs:
            slot = i * THREADS + thread
            peak[slot] = T.max(group_RG[row, 2 * slot], group_RG[row, 2 * slot + 1])
    T.sync_threads()
    trips = T.if_then_else(wanted > 0, pairs, 0)
    for i in T.unroll(rounds):
        if i * THREADS + thread < pairs:
            mine = peak[i * THREADS + thread]
            rank = 0
            for step in T.serial(trips // STEP):
                for other in T.unroll(STEP):
                    if is_before(
                        peak[step * STEP + other],
                        step * STEP + other,
                        mine,
                        i * THREADS + thread,
                    ):
                        rank += 1
            if trips > 0 and rank == wanted - 1:
                threshold[0] = mine
    T.sync_threads()
    for i in T.unroll(rounds):
        slot = i * THREADS + thread
        if slot < pairs and trips > 0:
            mine = peak[slot]
            if mine >= threshold[0] and mine > -T.infinity(dtype):
                rank = T.atomic_add(counts[1], 1, return_prev=True)
                hot[rank] = slot
    T.sync_threads()
    trips = T.ceildiv(T.max(counts[1] - thread // 32, 0), _WARPS)
    for i in T.serial(trips):
        slot = hot[i * _WARPS + thread // 32]
        first = slot // _PAIRS * SEGMENT_TOKENS + slot % _PAIRS * 32 + thread % 32
        for stretch in T.unroll(_STRETCHES):
            x[stretch] = -T.infinity(dtype)
            if first + stretch * (SEGMENT_TOKENS // _STRETCHES) < vocabulary:
                x[stretch] = logits_RV[row, first + stretch * (SEGMENT_TOKENS // _STRETCHES)]
        for stretch in T.unroll(_STRETCHES):
            if x[stretch] >= threshold[0] and x[stretch] > -T.infinity(dtype):
                rank = T.atomic_add(counts[0], 1, return_prev=True)
                if rank < CANDIDATES:
                    value[rank] = T.cast(x[stretch], "float64")
                    token[rank] = first + stretch * (SEGMENT_TOKENS // _STRETCHES)
    T.sync_threads()
