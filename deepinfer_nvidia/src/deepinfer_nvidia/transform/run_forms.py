"""Which kernel does each form of the arguments of a run of row-wise operators need?

As ``forms`` has it for the operators one by one.
"""

from __future__ import annotations

import torch
from deepinfer_core.interfaces.operators.transform import MhcStreamsSpec
from deepinfer_core.interfaces.operators.transform_runs import (
    CollapseNormSpec,
    NormCastSpec,
    NormRopeSpec,
    RopeCastSpec,
    SwigluCastSpec,
)

from deepinfer_nvidia.kernels import (
    transform_add_expand,
    transform_collapse_norm,
    transform_expand_norm,
    transform_norm_rope,
    transform_rms_norm_cast,
    transform_rope_cast,
    transform_swiglu_cast,
)
from deepinfer_nvidia.kernels.arguments import dtype_name
from deepinfer_nvidia.kernels.launch import Wanted

__all__ = [
    "add_expand_kernel",
    "collapse_norm_kernel",
    "expand_norm_kernel",
    "norm_cast_kernel",
    "norm_rope_kernel",
    "rope_cast_kernel",
    "swiglu_cast_kernel",
]


def norm_cast_kernel(
    width: int,
    dtype: torch.dtype,
    weight_dtype: torch.dtype,
    eps: float,
    number_format: str,
    row_stride: int,
) -> Wanted:
    """RMS norm and rounding of rows at this distance."""
    spec = NormCastSpec(
        width=width,
        dtype=dtype_name(dtype),
        weight_dtype=dtype_name(weight_dtype),
        eps=eps,
        number_format=number_format,
        row_stride=row_stride,
    )
    return transform_rms_norm_cast.build, spec, transform_rms_norm_cast.default_tuning(spec)


def collapse_norm_kernel(
    streams: int,
    width: int,
    dtype: torch.dtype,
    weight_dtype: torch.dtype,
    eps: float,
    number_format: str | None,
) -> Wanted:
    """Norm of the weighted sum of streams, and its rounding where there is a format."""
    spec = _collapse_spec(streams, width, dtype, weight_dtype, eps, number_format)
    return transform_collapse_norm.build, spec, transform_collapse_norm.default_tuning(spec)


def expand_norm_kernel(
    streams: int,
    width: int,
    dtype: torch.dtype,
    weight_dtype: torch.dtype,
    eps: float,
    number_format: str | None,
) -> Wanted:
    """The same of streams that are mixed first."""
    spec = _collapse_spec(streams, width, dtype, weight_dtype, eps, number_format)
    return transform_expand_norm.build, spec, transform_expand_norm.default_tuning(spec)


def norm_rope_kernel(
    sizes: tuple[int, int],
    dtype: torch.dtype,
    weight_dtype: torch.dtype,
    eps: float,
    keeps_normed: bool,
    row_stride: int,
) -> Wanted:
    """RMS norm and rotation; ``sizes`` are channels and pairs."""
    width, pairs = sizes
    spec = NormRopeSpec(
        width=width,
        pairs=pairs,
        dtype=dtype_name(dtype),
        weight_dtype=dtype_name(weight_dtype),
        eps=eps,
        keeps_normed=keeps_normed,
        row_stride=row_stride,
    )
    return transform_norm_rope.build, spec, transform_norm_rope.default_tuning(spec)


def rope_cast_kernel(
    sizes: tuple[int, int, int],
    dtype: torch.dtype,
    out_dtype: torch.dtype,
    is_inverse: bool,
    number_format: str,
    strides: tuple[int, ...],
) -> Wanted:
    """Rotation and rounding; ``sizes`` are heads, channels and pairs."""
    heads, width, pairs = sizes
    spec = RopeCastSpec(
        heads=heads,
        width=width,
        pairs=pairs,
        dtype=dtype_name(dtype),
        out_dtype=dtype_name(out_dtype),
        is_inverse=is_inverse,
        number_format=number_format,
        strides=(strides[0], strides[1]),
    )
    return transform_rope_cast.build, spec, transform_rope_cast.default_tuning(spec)


def swiglu_cast_kernel(
    width: int,
    dtype: torch.dtype,
    limit: float,
    has_route: bool,
    number_format: str,
    row_stride: int,
) -> Wanted:
    """Expert activation and rounding, with or without a routing weight."""
    spec = SwigluCastSpec(
        width=width,
        dtype=dtype_name(dtype),
        limit=limit,
        has_route=has_route,
        number_format=number_format,
        row_stride=row_stride,
    )
    return transform_swiglu_cast.build, spec, transform_swiglu_cast.default_tuning(spec)


def add_expand_kernel(streams: int, width: int, dtype: torch.dtype) -> Wanted:
    """Streams mixed, and the sum of two outputs added to them."""
    spec = MhcStreamsSpec(streams=streams, width=width, dtype=dtype_name(dtype))
    return transform_add_expand.build, spec, transform_add_expand.default_tuning(spec)


def _collapse_spec(
    streams: int,
    width: int,
    dtype: torch.dtype,
    weight_dtype: torch.dtype,
    eps: float,
    number_format: str | None,
) -> CollapseNormSpec:
    return CollapseNormSpec(
        streams=streams,
        width=width,
        dtype=dtype_name(dtype),
        weight_dtype=dtype_name(weight_dtype),
        eps=eps,
        number_format=number_format,
    )
