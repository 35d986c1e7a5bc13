"""Masked logits. Twin: ``deepinfer_core.reference.logits_rules``, ``adjusted``.

A block a segment; what is not allowed becomes -inf.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.sampler import SEGMENT_TOKENS, MaskLogitsSpec

from deepinfer_nvidia.kernels import token_law as law
from deepinfer_nvidia.kernels.compiler_switches import OWN_BARRIERS
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["build", "default_tuning"]


def default_tuning(_spec: MaskLogitsSpec) -> KernelTuning:
    """As segments are divided."""
    return KernelTuning(threads=law.THREADS, pass_configs=OWN_BARRIERS)


def build(spec: MaskLogitsSpec, tuning: KernelTuning) -> Any:
    """Rows of ``spec.vocabulary`` logits."""
    rows = T.dynamic("rows")
    vocabulary, dtype, threads = spec.vocabulary, spec.dtype, tuning.threads
    segments = -(-vocabulary // SEGMENT_TOKENS)
    is_vectored = vocabulary % law.VECTOR == 0 and dtype == "float32"

    @T.prim_func
    def sampler_mask_logits(
        raw_logits_RV: T.Tensor((rows, vocabulary), spec.raw_dtype),
        allowed_RW: T.Tensor((rows, spec.words), "int32"),
        logits_RV: T.Tensor((rows, vocabulary), dtype),
    ) -> None:
        with T.Kernel(segments, rows, threads=threads) as (segment, row):
            thread = T.get_thread_binding()
            x = T.alloc_local((law.VECTORS * law.VECTOR,), spec.raw_dtype)
            masked = T.alloc_local((law.VECTOR,), dtype)
            word = T.alloc_var("int32")
            law.load_segment(raw_logits_RV, x, row, segment, vocabulary)
            for vector in T.unroll(law.VECTORS):
                first = law.token_of(segment, vector, 0, thread)
                if first < vocabulary:
                    word = allowed_RW[row, first // 32] >> (first % 32)
                    for place in T.unroll(law.VECTOR):
                        masked[place] = -T.infinity(dtype)
                        if ((word >> place) & 1) == 1:
                            masked[place] = T.cast(x[vector * law.VECTOR + place], dtype)
                    if is_vectored:
                        for place in T.vectorized(law.VECTOR):
                            logits_RV[row, first + place] = masked[place]
                    else:
                        for place in T.unroll(law.VECTOR):
                            if first + place < vocabulary:
                                logits_RV[row, first + place] = masked[place]

    return sampler_mask_logits
