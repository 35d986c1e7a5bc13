"""Choice of experts. Twin: ``deepinfer_core.reference.routing``, ``choose_experts``.

A warp has a row, a lane every so many vectors of it. A key is the biased score, as bits in an order
that integers share; a NaN is the largest, as in the twin's sort. Each round takes the largest of
the keys that are left, and among equals the lowest expert.

Lanes whose largest key is not among the k largest of such have none of the k experts. What the
others hold is dealt out again, so that rounds look at few keys a lane; if equal keys leave more
lanes than there is room for, rounds look at all keys.

A score is ``sqrt(log(1 + exp(x)))``: an exponential of base 2, which the device has, and a
polynomial for the logarithm. Scores of logits below -87 are zero.
"""

from math import gcd, log
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform import GateTopkSpec

from deepinfer_nvidia.kernels.compiler_switches import NO_BOUNDS_CHECKS
from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]

_WARP = 32
_KEPT = 8
"""Lanes whose keys are dealt out again."""

_SHARE = _WARP // _KEPT
"""Lanes that share the keys of one."""

_SUM_EPS = 1e-20
_LARGEST = 0x7FFFFFFF
_INFINITY_BITS = 0x7F800000
_TAKEN = -(1 << 31)
"""Below the key of every number."""

_LOG_SLOPE = (
    0.9999999403953552,
    -0.4999944567680359,
    0.3331812024116516,
    -0.2483539879322052,
    0.19076880812644958,
    -0.13602247834205627,
    0.0775160863995552,
    -0.029074065387248993,
    0.005126102361828089,
)
"""``log(1 + p) / p`` for p from 0 to 1, off by 1e-7 of itself: a fit at Chebyshev's points."""


def default_tuning(_spec: GateTopkSpec) -> KernelTuning:
    """Four rows a block, and the device's own exponential, root and quotient."""
    return KernelTuning(
        threads=128, pass_configs=(*NO_BOUNDS_CHECKS, ("tl.enable_fast_math", True))
    )


def build(spec: GateTopkSpec, tuning: KernelTuning) -> Any:
    """Rows of ``spec.experts`` logits."""
    rows = T.dynamic("rows")
    experts, chosen, scaling = spec.experts, spec.chosen, T.float32(spec.scaling)
    vector = gcd(experts, 4)
    slots = -(-experts // (_WARP * vector)) * vector
    padded, block_rows = slots * _WARP, tuning.threads // _WARP
    # Trace-time choice: too few keys a lane, or too many experts, to deal out again.
    is_dealt = slots % _SHARE == 0 and slots > _SHARE and chosen <= _KEPT
    rounds, weigh, score = _rounds(chosen), _weigh(chosen, scaling), _score()
    choose = _dealt(block_rows, slots, vector, chosen, rounds) if is_dealt else rounds

    @T.prim_func
    def transform_gate_topk(
        logits_TE: T.Tensor((rows, experts), "float32"),
        bias_E: T.Tensor((experts,), "float32"),
        image_bias_E: T.Tensor((experts,), "float32"),
        image_T: T.Tensor((rows,), "bool"),
        expert_Tk: T.Tensor((rows, chosen), "int64"),
        weight_Tk: T.Tensor((rows, chosen), "float32"),
    ) -> None:
        with T.Kernel(T.ceildiv(rows, block_rows), threads=tuning.threads) as block:
            let_next_start(rows)
            T.pdl_sync()
            thread = T.get_thread_binding()
            warp, lane = thread // _WARP, thread % _WARP
            row = block * block_rows + warp
            # Warps beyond the last row compute it again, and write nothing.
            source = T.min(row, rows - 1)
            scores = T.alloc_shared((block_rows, padded), "float32")
            logit = T.alloc_local((slots,), "float32")
            bias = T.alloc_local((slots,), "float32")
            keys = T.alloc_local((slots,), "int32")
            places = T.alloc_local((slots,), "int32")
            mine = T.alloc_local((1,), "int32")
            is_image = T.alloc_local((1,), "bool")
            is_image[0] = image_T[source]
            for c in T.unroll(slots // vector):
                if (c * _WARP + lane) * vector < experts:
                    for v in T.vectorized(vector):
                        logit[c * vector + v] = logits_TE[source, (c * _WARP + lane) * vector + v]
                    for v in T.vectorized(vector):
                        bias[c * vector + v] = bias_E[(c * _WARP + lane) * vector + v]
                else:
                    for v in T.unroll(vector):
                        logit[c * vector + v] = T.float32(0)
                        bias[c * vector + v] = T.float32(0)
            if is_image[0]:
                for c in T.unroll(slots // vector):
                    if (c * _WARP + lane) * vector < experts:
                        for v in T.vectorized(vector):
                            bias[c * vector + v] = image_bias_E[(c * _WARP + lane) * vector + v]
            for s in T.unroll(slots):
                places[s] = (s // vector * _WARP + lane) * vector + s % vector
                score(logit, s)
                keys[s] = T.if_then_else(
                    places[s] < experts, _key(T.ieee_add(logit[s], bias[s])), _TAKEN
                )
            for c in T.unroll(slots // vector):
                for v in T.vectorized(vector):
                    scores[warp, (c * _WARP + lane) * vector + v] = logit[c * vector + v]
            choose(keys, places, slots, lane, mine)
            T.sync_threads()
            weigh(scores, warp, lane, mine, row, rows, expert_Tk, weight_Tk)

    return transform_gate_topk


def _rounds(chosen: int) -> Any:
    @T.macro
    def rounds(keys: Any, places: Any, slots: int, lane: Any, mine: Any) -> None:
        """Leave the expert of place ``lane`` in ``mine``; expert numbers grow with the slot."""
        best = T.alloc_local((1,), "int32")
        place = T.alloc_local((1,), "int32")
        for r in T.unroll(chosen):
            best[0] = keys[0]
            for s in T.unroll(1, slots):
                best[0] = T.max(best[0], keys[s])
            best[0] = T.warp_reduce_max(best[0])
            place[0] = _LARGEST
            for s in T.unroll(slots):
                if keys[s] == best[0]:
                    place[0] = T.min(place[0], places[s])
            place[0] = T.warp_reduce_min(place[0])
            for s in T.unroll(slots):
                if places[s] == place[0]:
                    keys[s] = _TAKEN
            if lane == r:
                mine[0] = place[0]

    return rounds


def _dealt(block_rows: int, slots: int, vector: int, chosen: int, rounds: Any) -> Any:
    share = slots // _SHARE

    @T.macro
    def dealt(keys: Any, places: Any, all_slots: int, lane: Any, mine: Any) -> None:
        """As rounds, but only lanes that may have one of the chosen hand in their keys."""
        warp = T.get_thread_binding() // _WARP
        most = T.alloc_local((1,), "int32")
        rest = T.alloc_local((1,), "int32")
        least = T.alloc_local((1,), "int32")
        rank = T.alloc_local((1,), "int32")
        count = T.alloc_local((1,), "int32")
        few = T.alloc_local((share,), "int32")
        few_places = T.alloc_local((share,), "int32")
        kept = T.alloc_shared((block_rows, _KEPT, slots), "int32")
        owner = T.alloc_shared((block_rows, _KEPT), "int32")
        most[0] = keys[0]
        for s in T.unroll(1, slots):
            most[0] = T.max(most[0], keys[s])
        rest[0] = most[0]
        for _ in T.unroll(chosen):
            least[0] = T.warp_reduce_max(rest[0])
            if rest[0] == least[0]:
                rest[0] = _TAKEN
        is_in = most[0] >= least[0]
        lanes_in = T.cast(T.ballot(is_in), "uint32")
        count[0] = T.cast(T.popcount(lanes_in), "int32")
        below = (T.uint32(1) << T.cast(lane, "uint32")) - T.uint32(1)
        rank[0] = T.cast(T.popcount(lanes_in & below), "int32")
        if is_in and rank[0] < _KEPT:
            owner[warp, rank[0]] = lane
            for c in T.unroll(slots // vector):
                for v in T.vectorized(vector):
                    kept[warp, rank[0], c * vector + v] = keys[c * vector + v]
        T.sync_threads()
        for j in T.unroll(share):
            few[j] = _TAKEN
            few_places[j] = _LARGEST
            if lane // _SHARE < count[0]:
                slot = lane % _SHARE * share + j
                few[j] = kept[warp, lane // _SHARE, slot]
                few_places[j] = (
                    slot // vector * _WARP + owner[warp, lane // _SHARE]
                ) * vector + slot % vector
        if count[0] <= _KEPT:
            rounds(few, few_places, share, lane, mine)
        else:
            rounds(keys, places, all_slots, lane, mine)

    return dealt


def _weigh(chosen: int, scaling: Any) -> Any:
    @T.macro
    def weigh(
        scores: Any, warp: Any, lane: Any, mine: Any, row: Any, rows: Any, expert: Any, weight: Any
    ) -> None:
        """Write experts and weights, a lane each; scores add up best first."""
        score = T.alloc_local((1,), "float32")
        total = T.alloc_local((1,), "float32")
        score[0] = T.float32(0)
        if lane < chosen:
            score[0] = scores[warp, mine[0]]
        total[0] = T.float32(0)
        for r in T.unroll(chosen):
            total[0] += T.shfl_sync(score[0], r)
        if lane < chosen and row < rows:
            expert[row, lane] = T.cast(mine[0], "int64")
            weight[row, lane] = score[0] / (total[0] + T.float32(_SUM_EPS)) * scaling

    return weigh


def _score() -> Any:
    @T.macro
    def score(x: Any, s: Any) -> None:
        """Replace x by ``sqrt(log(1 + exp(x)))``, without overflow."""
        power = T.alloc_local((1,), "float32")
        slope = T.alloc_local((1,), "float32")
        power[0] = T.exp2(T.abs(x[s]) * T.float32(-1 / log(2)))
        slope[0] = T.float32(_LOG_SLOPE[-1])
        for factor in _LOG_SLOPE[-2::-1]:
            slope[0] = slope[0] * power[0] + T.float32(factor)
        # No maximum, which would drop a NaN; the power of a NaN is one, too.
        above = T.if_then_else(x[s] > T.float32(0), x[s], T.float32(0))
        x[s] = T.sqrt(slope[0] * power[0] + above)

    return score


def _key(value: Any) -> Any:
    """A value's bits, in the order of the values."""
    bits = T.reinterpret(value, "int32")
    ordered = bits ^ ((bits >> 31) & _LARGEST)
    return T.if_then_else((bits & _LARGEST) > _INFINITY_BITS, _LARGEST, ordered)
