"""Which kernels may be asked for that do a run of row-wise operators in one pass?

``interfaces.transform`` says what they compute. Row counts are dynamic and everything else is
fixed; unless a spec says so, tensors lie without gaps. Rounded rows are what ``numeric`` makes of
rows in a block format, in any dtype that holds them.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "CollapseNormSpec",
    "NormCastSpec",
    "NormRopeSpec",
    "RopeCastSpec",
    "SwigluCastSpec",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NormCastSpec:
    """``Transform.rms_norm_rounded``; arguments x_TD, weight_D, rounded_TD (bfloat16).

    Attributes:
        width: D, a multiple of the format's group.
        dtype: name of the dtype of the rows, and of their norm before it is rounded.
        weight_dtype: name of the dtype of the weight.
        eps: added to the mean square.
        number_format: ``mxfp8``, ``mxfp4`` or ``fp4_e4m3x16``.
        row_stride: elements from one row of x_TD to the next.
    """

    width: int
    dtype: str
    weight_dtype: str
    eps: float
    number_format: str
    row_stride: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CollapseNormSpec:
    """``Transform.collapse_norm`` and ``expand_norm``.

    Arguments of the first: trunk_TSD, pre_TS (fp32), weight_D, out_TD, and rounded_TD (bfloat16) if
    there is a format; of the other: trunk_TSD, y_TD, post_TS, comb_TSS, pre_TS, weight_D, out_TSD,
    normed_TD, and rounded_TD as before.

    Attributes:
        streams: S.
        width: D; with a format, a multiple of its group.
        dtype: name of the dtype of the streams and of the result.
        weight_dtype: name of the dtype of the weight.
        eps: added to the mean square.
        number_format: as in ``NormCastSpec``; None: nothing is rounded.
    """

    streams: int
    width: int
    dtype: str
    weight_dtype: str
    eps: float
    number_format: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NormRopeSpec:
    """``Transform.norm_rope``.

    Arguments x_TD, weight_D, cosine_TP, sine_TP, normed_TD if it is kept, out_TD.

    Attributes:
        width: D.
        pairs: P; the last 2 * P channels turn.
        dtype: name of the dtype of rows in and out.
        weight_dtype: name of the dtype of the weight.
        eps: added to the mean square.
        keeps_normed: normed_TD gets the rows before they turn.
        row_stride: elements from one row of x_TD to the next.
    """

    width: int
    pairs: int
    dtype: str
    weight_dtype: str
    eps: float
    keeps_normed: bool
    row_stride: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeCastSpec:
    """``Transform.rope_rounded``; arguments x_THD, cosine_TP, sine_TP, rounded_TX [T, H * D].

    Attributes:
        heads: H.
        width: D; H * D is a multiple of the format's group.
        pairs: P; the last 2 * P channels of a head turn.
        dtype: name of the dtype of rows in.
        out_dtype: name of the dtype of rounded_TX.
        is_inverse: turn by the negative angle.
        number_format: as in ``NormCastSpec``.
        strides: elements from one row of x_THD to the next, and from one head to the next.
    """

    heads: int
    width: int
    pairs: int
    dtype: str
    out_dtype: str
    is_inverse: bool
    number_format: str
    strides: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwigluCastSpec:
    """``Transform.swiglu_rounded``; arguments gate_up_R2I, route_R if there is one, rounded_RI.

    Attributes:
        width: I, a multiple of the format's group.
        dtype: name of the dtype of gate_up_R2I, and of the activation before it is rounded.
        limit: of gate and up.
        has_route: whether rows have a factor.
        number_format: as in ``NormCastSpec``; rounded_RI is bfloat16.
        row_stride: elements from one row of gate_up_R2I to the next.
    """

    width: int
    dtype: str
    limit: float
    has_route: bool
    number_format: str
    row_stride: int
