"""Which kernel does each form of a row-wise operator's arguments need?

A form is whatever a kernel is compiled for: widths, dtypes, distances between rows, constants.
"""

from __future__ import annotations

import torch
from deepinfer_core.interfaces.operators.transform import (
    CastSpec,
    GateTopkSpec,
    MhcStreamsSpec,
    RmsNormSpec,
    RopeSpec,
    SwigluSpec,
)

from deepinfer_nvidia.kernels import (
    transform_cast,
    transform_gate_topk,
    transform_mhc_collapse,
    transform_mhc_expand,
    transform_rms_norm,
    transform_rope,
    transform_swiglu,
)
from deepinfer_nvidia.kernels.arguments import dtype_name
from deepinfer_nvidia.kernels.launch import Wanted

__all__ = [
    "activation_kernel",
    "cast_kernel",
    "collapse_kernel",
    "expand_kernel",
    "norm_kernel",
    "rotation_kernel",
    "routing_kernel",
]


def cast_kernel(
    width: int, dtype: torch.dtype, out_dtype: torch.dtype, number_format: str, row_stride: int
) -> Wanted:
    """The kernel that rounds rows as a number format does."""
    spec = CastSpec(
        width=width,
        dtype=dtype_name(dtype),
        out_dtype=dtype_name(out_dtype),
        number_format=number_format,
        row_stride=row_stride,
    )
    return transform_cast.build, spec, transform_cast.default_tuning(spec)


def norm_kernel(
    width: int,
    dtype: torch.dtype,
    weight_dtype: torch.dtype,
    out_dtype: torch.dtype,
    eps: float,
    row_stride: int,
) -> Wanted:
    """RMS norm of rows at this distance."""
    spec = RmsNormSpec(
        width=width,
        dtype=dtype_name(dtype),
        weight_dtype=dtype_name(weight_dtype),
        out_dtype=dtype_name(out_dtype),
        eps=eps,
        row_stride=row_stride,
    )
    return transform_rms_norm.build, spec, transform_rms_norm.default_tuning(spec)


def rotation_kernel(
    sizes: tuple[int, int, int],
    dtype: torch.dtype,
    is_inverse: bool,
    is_in_place: bool,
    strides: tuple[int, ...],
    out_strides: tuple[int, ...],
) -> Wanted:
    """Rotation of the last pairs of heads; ``sizes`` are heads, channels and pairs."""
    heads, width, pairs = sizes
    spec = RopeSpec(
        heads=heads,
        width=width,
        pairs=pairs,
        dtype=dtype_name(dtype),
        is_inverse=is_inverse,
        is_in_place=is_in_place,
        strides=(strides[0], strides[1]),
        out_strides=(out_strides[0], out_strides[1]),
    )
    return transform_rope.build, spec, transform_rope.default_tuning(spec)


def routing_kernel(experts: int, chosen: int, scaling: float) -> Wanted:
    """Choice of experts."""
    spec = GateTopkSpec(experts=experts, chosen=chosen, scaling=scaling)
    return transform_gate_topk.build, spec, transform_gate_topk.default_tuning(spec)


def activation_kernel(
    width: int,
    dtype: torch.dtype,
    out_dtype: torch.dtype,
    limit: float,
    has_route: bool,
    row_stride: int,
) -> Wanted:
    """Expert activation, with or without a routing weight."""
    spec = SwigluSpec(
        width=width,
        dtype=dtype_name(dtype),
        out_dtype=dtype_name(out_dtype),
        limit=limit,
        has_route=has_route,
        row_stride=row_stride,
    )
    return transform_swiglu.build, spec, transform_swiglu.default_tuning(spec)


def collapse_kernel(streams: int, width: int, dtype: torch.dtype) -> Wanted:
    """Weighted sum of streams."""
    spec = MhcStreamsSpec(streams=streams, width=width, dtype=dtype_name(dtype))
    return transform_mhc_collapse.build, spec, transform_mhc_collapse.default_tuning(spec)


def expand_kernel(streams: int, width: int, dtype: torch.dtype) -> Wanted:
    """Streams mixed, and an output added to them."""
    spec = MhcStreamsSpec(streams=streams, width=width, dtype=dtype_name(dtype))
    return transform_mhc_expand.build, spec, transform_mhc_expand.default_tuning(spec)
