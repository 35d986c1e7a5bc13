"""Which row-wise kernels may be asked for? ``interfaces.transform`` says what they compute.

Row counts are dynamic and everything else is fixed, distances between the rows of a slice included.
Unless a spec says so, tensors lie without gaps.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "CastSpec",
    "EngramGateSpec",
    "EngramRowsSpec",
    "GateTopkSpec",
    "MhcMixesSpec",
    "MhcProductsSpec",
    "MhcStreamsSpec",
    "RmsNormSpec",
    "RopeSpec",
    "SwigluSpec",
]

_COLUMNS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RmsNormSpec:
    """``Transform.rms_norm``; arguments x_TD, weight_D, out_TD.

    Attributes:
        width: D.
        dtype: name of the dtype of rows in.
        weight_dtype: name of the dtype of the weight.
        out_dtype: name of the dtype of rows out.
        eps: added to the mean square.
        row_stride: elements from one row of x_TD to the next.
    """

    width: int
    dtype: str
    weight_dtype: str
    out_dtype: str
    eps: float
    row_stride: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeSpec:
    """``Transform.rope``; arguments x_THD, cosine_TP, sine_TP, out_THD.

    Attributes:
        heads: H.
        width: D.
        pairs: P; the last 2 * P channels of a head turn.
        dtype: name of the dtype of rows in and out.
        is_inverse: turn by the negative angle.
        is_in_place: x_THD and out_THD are the same memory; the other channels stay.
        strides: elements from one row of x_THD to the next, and from one head to the next.
        out_strides: the same of out_THD.
    """

    heads: int
    width: int
    pairs: int
    dtype: str
    is_inverse: bool
    is_in_place: bool
    strides: tuple[int, int]
    out_strides: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CastSpec:
    """``Transform.fake_quantise`` for a format with scales; arguments x_TD, out_TD.

    Attributes:
        width: D, a multiple of the format's group.
        dtype: name of the dtype of the rows.
        out_dtype: name of the dtype of the rounded ones, which bfloat16 holds exactly.
        number_format: ``mxfp8``, ``mxfp4`` or ``fp4_e4m3x16``.
        row_stride: elements from one row of x_TD to the next.
    """

    width: int
    dtype: str
    out_dtype: str
    number_format: str
    row_stride: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MhcProductsSpec:
    """The products of ``Transform.mhc_mixes``, in pieces of the trunk's width.

    Arguments trunk_TK [T, K], part_NK bf16 [N, K], product_PTM fp32 [P, T, M] and square_PT fp32
    [P, T], the sums of channel times weight, and of the squares of the channels. A weight is the
    sum of its three parts (``numeric.bf16_parts``).

    A sum is one over a run of pieces. That of each piece is complete before it is added, so runs
    change no bit of what ``MhcMixesSpec`` makes of the sums, as long as its runs end with these.

    Attributes:
        width: K = S * D.
        mixes: M.
        dtype: name of the dtype of the trunk.
        piece_width: channels of a piece; the last may be shorter.
        run: pieces of a sum; divides their number. P is their number divided by it.
    """

    width: int
    mixes: int
    dtype: str
    piece_width: int
    run: int = 1

    @property
    def pieces(self) -> int:
        """P."""
        return -(-self.width // self.piece_width) // self.run

    @property
    def columns(self) -> int:
        """N: three parts of each mix, in whole columns of a matrix instruction."""
        return -(-3 * self.mixes // _COLUMNS) * _COLUMNS


@dataclass(frozen=True, slots=True, kw_only=True)
class MhcMixesSpec:
    """The rest of ``Transform.mhc_mixes``: norm, sigmoids and Sinkhorn.

    Arguments product_PTM, square_PT, base_M, scale_3, pre_TS, post_TS, comb_TSS, all fp32.

    Attributes:
        streams: S.
        width: K, the number of squares.
        pieces: P, sums that are added up.
        run: sums that are added to one before that is added to the others; divides P.
        sinkhorn_iterations: normalisations of columns.
        eps: added to the pre mixes and inside Sinkhorn.
        norm_eps: added to the mean square.
    """

    streams: int
    width: int
    pieces: int
    run: int = 1
    sinkhorn_iterations: int
    eps: float
    norm_eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MhcStreamsSpec:
    """``Transform.mhc_collapse`` and ``mhc_expand``; their arguments by the same names.

    Attributes:
        streams: S.
        width: D.
        dtype: name of the dtype of the streams; mixes are fp32.
    """

    streams: int
    width: int
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GateTopkSpec:
    """``Transform.gate_topk``; its arguments by the same names.

    Attributes:
        experts: E.
        chosen: k.
        scaling: factor on the normalised weights.
    """

    experts: int
    chosen: int
    scaling: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SwigluSpec:
    """``Transform.swiglu``; arguments gate_up_R2I, route_R if there is one, out_RI.

    Attributes:
        width: I.
        dtype: name of the dtype of gate_up_R2I.
        out_dtype: name of the dtype of out_RI.
        limit: of gate and up.
        has_route: whether rows have a factor.
        row_stride: elements from one row of gate_up_R2I to the next.
    """

    width: int
    dtype: str
    out_dtype: str
    limit: float
    has_route: bool
    row_stride: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngramRowsSpec:
    """``Transform.engram_rows``; arguments compressed_TN, row_TC.

    The hash is part of the spec, so that a kernel divides by constants.

    Attributes:
        multipliers: one a lookback distance, N.
        primes: table size of each column, C.
        offsets: first row of each column's table, C.
        orders: n-gram order of each column, C.
    """

    multipliers: tuple[int, ...]
    primes: tuple[int, ...]
    offsets: tuple[int, ...]
    orders: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngramGateSpec:
    """``Transform.engram_gate``; its arguments by the same names.

    Attributes:
        streams: S.
        width: D.
        dtype: name of the dtype of trunk, keys, values and result.
        weight_dtype: name of the dtype of both weights.
        norm_eps: added to mean squares.
        key_stride: elements from one row of key_TSD to the next.
        value_stride: the same of value_TD.
    """

    streams: int
    width: int
    dtype: str
    weight_dtype: str
    norm_eps: float
    key_stride: int
    value_stride: int
