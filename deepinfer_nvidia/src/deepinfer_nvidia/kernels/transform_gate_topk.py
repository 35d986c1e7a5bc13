"""Choice of experts. Twin: ``deepinfer_core.reference.routing``, ``choose_experts``.

One warp a row. Each round takes the largest of the keys that are left: a key is the biased score,
as bits in an order that integers share, above the expert's number, counted from the far end, so
that a tie goes to the lower expert. A NaN is the largest score, as in the twin's sort.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.transform import GateTopkSpec

from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]

_SUM_EPS = 1e-20
_LOW_MASK = 0xFFFFFFFF
_LARGEST = 0x7FFFFFFF
_INFINITY_BITS = 0x7F800000
_TAKEN = -(1 << 63)


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
            key = T.alloc_fragment((1, padded), "int64")
            best = T.alloc_fragment((1,), "int64")
            kept = T.alloc_fragment((1, padded), "float32")
            total = T.alloc_fragment((1,), "float32")
            weights = [T.alloc_fragment((1,), "float32") for _ in range(chosen)]
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
                key[i, e] = T.if_then_else(
                    e < experts, _key(score[i, e] + bias[i, e], experts - e), T.int64(_TAKEN)
                )
            for slot, chosen_weight in enumerate(weights):
                T.reduce_max(key, best, dim=1)
                for i, e in T.Parallel(1, padded):
                    is_best = key[i, e] == best[i]
                    kept[i, e] = T.if_then_else(is_best, score[i, e], T.float32(0))
                    key[i, e] = T.if_then_else(is_best, T.int64(_TAKEN), key[i, e])
                T.reduce_sum(kept, chosen_weight, dim=1)
                for i in T.Parallel(1):
                    expert_Tk[row + i, slot] = experts - (best[i] & T.int64(_LOW_MASK))
            for i in T.Parallel(1):
                total[i] = T.float32(0)
                for chosen_weight in weights:
                    total[i] += chosen_weight[i]
                for slot, chosen_weight in enumerate(weights):
                    weight_Tk[row + i, slot] = (
                        chosen_weight[i] / (total[i] + T.float32(_SUM_EPS)) * scaling
                    )

    return transform_gate_topk


def _softplus(x: Any) -> Any:
    """``log(1 + exp(x))``; the quotient undoes the rounding of ``1 + power``.

    The difference is written as a call, or it would be simplified to ``power``.
    """
    power = T.exp(-T.abs(x))
    above = power + T.float32(1)
    correction = T.log(above) * (power / T.ieee_sub(above, T.float32(1)))
    return T.max(x, T.float32(0)) + T.if_then_else(above == 1, power, correction)


def _key(value: Any, place: Any) -> Any:
    """A value's bits in the order of the values, and below them its place among ties."""
    bits = T.reinterpret(value, "int32")
    ordered = bits ^ ((bits >> 31) & _LARGEST)
    ordered = T.if_then_else((bits & _LARGEST) > _INFINITY_BITS, _LARGEST, ordered)
    return (T.cast(ordered, "int64") << 32) | T.cast(place, "int64")
