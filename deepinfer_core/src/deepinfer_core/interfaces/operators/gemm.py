"""Which matrix products may be asked for? ``interfaces.gemm`` says what they compute."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GemmDenseSpec", "GemmExpertsSpec", "GemmSmallF32Spec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmDenseSpec:
    """Products of bf16 rows with bf16 weights; arguments x_TK, weight_NK, out_TN.

    With groups x is [T, G * K], the weight [G * N, K], the result [T, G * N]: ``DenseGemm.run``.

    Attributes:
        in_width: K, of one group.
        out_width: N, of one group.
        groups: G.
        out_dtype: ``bfloat16`` or ``float32``.
    """

    in_width: int
    out_width: int
    groups: int = 1
    out_dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmSmallF32Spec:
    """Products in fp32, one after the other along K; arguments x_TK, weight_NK, out_TN.

    For fp32 rows or weights, and for widths that tiles do not divide.

    Attributes:
        in_width: K, of one group.
        out_width: N, of one group.
        groups: as in ``GemmDenseSpec``.
        x_dtype: ``bfloat16`` or ``float32``.
        weight_dtype: ``bfloat16`` or ``float32``.
        out_dtype: ``bfloat16`` or ``float32``.
    """

    in_width: int
    out_width: int
    groups: int = 1
    x_dtype: str
    weight_dtype: str
    out_dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmExpertsSpec:
    """Products of rows, sorted by expert, with their expert's weights.

    Arguments x_RK, weight_ENC and, for ``mxfp4``, scale_ENG as in the checkpoint (C bytes, G scales
    a row), else weight_ENK; ends_E int64; out_RN. ``GroupedGemm.run_experts``.

    Attributes:
        experts: E.
        in_width: K.
        out_width: N.
        x_dtype: ``bfloat16`` or ``float32``.
        weight_format: ``mxfp4``, ``bfloat16`` or ``float32``.
        out_dtype: ``bfloat16`` or ``float32``.
    """

    experts: int
    in_width: int
    out_width: int
    x_dtype: str
    weight_format: str
    out_dtype: str
