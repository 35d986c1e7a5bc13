"""Bias and penalties, in place. Twin: ``deepinfer_core.reference.logits_rules``, ``adjusted``.

A block a row, a thread a listed token: first all biases, then all penalties, in fp64 as the twin.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.sampler import ApplyRulesSpec

from deepinfer_nvidia.kernels.compiler_switches import OWN_BARRIERS
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]


def default_tuning(_spec: ApplyRulesSpec) -> KernelTuning:
    """Lists are long or empty."""
    return KernelTuning(threads=512, pass_configs=OWN_BARRIERS)


def build(spec: ApplyRulesSpec, tuning: KernelTuning) -> Any:
    """Rows of ``spec.vocabulary`` fp64 logits."""
    rows, biases, seen = T.dynamic("rows"), T.dynamic("biases"), T.dynamic("seen")
    threads = tuning.threads

    @T.prim_func
    def sampler_apply_rules(
        bias_token_RB: T.Tensor((rows, biases), "int64"),
        bias_RB: T.Tensor((rows, biases), "float32"),
        seen_token_RN: T.Tensor((rows, seen), "int64"),
        output_count_RN: T.Tensor((rows, seen), "int64"),
        repetition_R: T.Tensor((rows,), "float32"),
        frequency_R: T.Tensor((rows,), "float32"),
        presence_R: T.Tensor((rows,), "float32"),
        logits_RV: T.Tensor((rows, spec.vocabulary), "float64"),
    ) -> None:
        with T.Kernel(rows, threads=threads) as row:
            thread = T.get_thread_binding()
            token = T.alloc_var("int64")
            count = T.alloc_var("float64")
            x = T.alloc_var("float64")
            for i in T.serial(T.ceildiv(biases, threads)):
                if i * threads + thread < biases:
                    token = bias_token_RB[row, i * threads + thread]
                    if token >= T.int64(0):
                        x = T.cast(bias_RB[row, i * threads + thread], "float64")
                        logits_RV[row, token] = logits_RV[row, token] + x
            T.sync_threads()
            for i in T.serial(T.ceildiv(seen, threads)):
                if i * threads + thread < seen:
                    token = seen_token_RN[row, i * threads + thread]
                    if token >= T.int64(0):
                        x = logits_RV[row, token]
                        if x > T.float64(0):
                            x = x / T.cast(repetition_R[row], "float64")
                        else:
                            x = x * T.cast(repetition_R[row], "float64")
                        count = T.cast(output_count_RN[row, i * threads + thread], "float64")
                        x = x - count * T.cast(frequency_R[row], "float64")
                        # A product with 0 has a sign too, as in the twin.
                        count = T.if_then_else(count > T.float64(0), T.float64(1), T.float64(0))
                        x = x - count * T.cast(presence_R[row], "float64")
                        logits_RV[row, token] = x

    return sampler_apply_rules
