"""Choice of experts. Twin: ``deepinfer_core.reference.routing``, ``choose_experts``.

One warp a row. Each round takes the largest of the keys that are left, and among equals the lowest
expert. A key is the biased score, as bits in an order that integers share; a NaN is the largest, as
in the twin's sort.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform import GateTopkSpec

from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]

_SUM_EPS = 1e-20
_LARGEST = 0x7FFFFFFF
_INFINITY_BITS = 0x7F800000
_TAKEN = -(1 << 31)
"""Below the key of every number."""


def default_tuning(_spec: GateTopkSpec) -> KernelTuning:
    """One warp."""
    return KernelTuning(threads=32)


def build(spec: GateTopkSpec, tuning: KernelTuning) -> Any:
    """Rows of ``spec.experts`` logits."""
    rows = T.dynamic("rows")
    experts, chosen, scaling = spec.experts, spec.chosen, T.float32(spec.scaling)
    padded = -(-experts // tuning.threads) * tuning.threads

    @T.prim_func
    def transform_gate_topk(
        logits_TE: T.Tensor((rows, experts), "float32"),
        bias_E: T.Tensor((experts,), "float32"),
        image_bias_E: T.Tensor((experts,), "float32"),
        image_T: T.Tensor((rows,), "bool"),
        expert_Tk: T.Tensor((rows, chosen), "int64"),
        weight_Tk: T.Tensor((rows, chosen), "float32"),
    ) -> None:
        with T.Kernel(rows, threads=tuning.threads) as row:
            logit = T.alloc_fragment((1, padded), "float32")
            bias = T.alloc_fragment((1, padded), "float32")
            score = T.alloc_fragment((1, padded), "float32")
            key = T.alloc_fragment((1, padded), "int32")
            best = T.alloc_fragment((1,), "int32")
            place = T.alloc_fragment((1, padded), "int32")
            total = T.alloc_fragment((1,), "float32")
            scores = T.alloc_shared((padded,), "float32")
            firsts = [T.alloc_fragment((1,), "int32") for _ in range(chosen)]
            for i, e in T.Parallel(1, padded):
                logit[i, e] = T.if_then_else(e < experts, logits_TE[row + i, e], T.float32(0))
            if image_T[row]:
                for i, e in T.Parallel(1, padded):
                    bias[i, e] = T.if_then_else(e < experts, image_bias_E[e], T.float32(0))
            else:
                for i, e in T.Parallel(1, padded):
                    bias[i, e] = T.if_then_else(e < experts, bias_E[e], T.float32(0))
            for i, e in T.Parallel(1, padded):
                score[i, e] = T.sqrt(_softplus(logit[i, e]))
                key[i, e] = T.if_then_else(e < experts, _key(score[i, e] + bias[i, e]), _TAKEN)
            for i, e in T.Parallel(1, padded):
                scores[e] = score[i, e]
            for first in firsts:
                T.reduce_max(key, best, dim=1)
                for i, e in T.Parallel(1, padded):
                    place[i, e] = T.if_then_else(key[i, e] == best[i], e, padded)
                T.reduce_min(place, first, dim=1)
                for i, e in T.Parallel(1, padded):
                    key[i, e] = T.if_then_else(e == first[i], _TAKEN, key[i, e])
            for i in T.Parallel(1):
                total[i] = T.float32(0)
                for first in firsts:
                    total[i] += scores[first[i]]
                for slot, first in enumerate(firsts):
                    expert_Tk[row + i, slot] = T.cast(first[i], "int64")
                    weight_Tk[row + i, slot] = (
                        scores[first[i]] / (total[i] + T.float32(_SUM_EPS)) * scaling
                    )

    return transform_gate_topk


def _softplus(x: Any) -> Any:
    """``log(1 + exp(x))``: what ``1 + power`` loses is added again.

    Exactly, that had to be divided by ``1 + power``: worth two roundings at most.
    The difference is a call, since the compiler would simplify it to ``power``.
    """
    power = T.exp(-T.abs(x))
    above = power + T.float32(1)
    lost = power - T.ieee_sub(above, T.float32(1))
    return T.max(x, T.float32(0)) + (T.log(above) + lost)


def _key(value: Any) -> Any:
    """A value's bits, in the order of the values."""
    bits = T.reinterpret(value, "int32")
    ordered = bits ^ ((bits >> 31) & _LARGEST)
    return T.if_then_else((bits & _LARGEST) > _INFINITY_BITS, _LARGEST, ordered)
