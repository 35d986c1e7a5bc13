"""How are residual streams mixed by kernels in TileLang?

Collapse and expansion give the bits of ``core.reference``; the mixes sum in another order.

Shapes: T rows, S streams, D width, K = S * D, M = S * (2 + S) mixes, P pieces of K.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.interfaces.operators.transform import MhcMixesSpec, MhcProductsSpec
from deepinfer_core.interfaces.transform import MixSpec, Transform
from deepinfer_core.numeric import bf16_parts

from deepinfer_nvidia.kernels import transform_mhc_mixes, transform_mhc_products
from deepinfer_nvidia.kernels.arguments import check, dtype_name
from deepinfer_nvidia.kernels.launch import KEPT_FORMS, Wanted, launches
from deepinfer_nvidia.transform.forms import collapse_kernel, expand_kernel

__all__ = ["TileLangStreams", "products_spec", "products_tuning"]

_FP32 = torch.float32
_STEP_WIDTH = 128
_MOST_PIECES = 40
"""Enough blocks that a few rows keep the device's memory busy; more would cost more to add up."""

_RUN = 10
"""Pieces that are added up at once, by the block that multiplies or by the one that mixes."""

_RUN_ROWS = 128
"""Of a block that adds up a run."""

_CORES = 132
_LEAST_FILL = 0.84
"""Of a Hopper GPU, in all waves of blocks of runs; with less, pieces are faster."""


def products_spec(width: int, mixes: int, dtype: str, rows: int = 1) -> MhcProductsSpec:
    """Cut the trunk's width into at most so many pieces of whole steps.

    The number of rows changes who adds up runs of pieces, and no bit.
    """
    steps = -(-width // _STEP_WIDTH)
    spec = MhcProductsSpec(
        width=width,
        mixes=mixes,
        dtype=dtype,
        piece_width=-(-steps // _MOST_PIECES) * _STEP_WIDTH,
    )
    blocks = -(-rows // _RUN_ROWS) * (spec.pieces // _RUN)
    is_full = blocks >= _LEAST_FILL * _CORES * -(-blocks // _CORES) > 0
    return replace(spec, run=_RUN) if is_full and spec.pieces % _RUN == 0 else spec


def products_tuning(spec: MhcProductsSpec, rows: int) -> transform_mhc_products.Tuning:
    """By how many tiles the rows fill."""
    few, more, *_ = 2 * transform_mhc_products.launch_tunings(spec)
    if spec.run > 1:
        return transform_mhc_products.default_tuning(spec)
    return few if rows <= few.tile_rows else more


def _products_kernel(width: int, mixes: int, dtype: torch.dtype, rows: int) -> Wanted:
    spec = products_spec(width, mixes, dtype_name(dtype), rows)
    return transform_mhc_products.build, spec, products_tuning(spec, rows)


def _mixes_kernel(streams: int, width: int, pieces: int, run: int, mix: MixSpec) -> Wanted:
    """Mixes from sums over ``run`` pieces each."""
    spec = MhcMixesSpec(
        streams=streams,
        width=width,
        pieces=pieces,
        run=1 if run > 1 or pieces % _RUN else _RUN,
        sinkhorn_iterations=mix.sinkhorn_iterations,
        eps=mix.eps,
        norm_eps=mix.norm_eps,
    )
    return transform_mhc_mixes.build, spec, transform_mhc_mixes.default_tuning(spec)


class TileLangStreams(Transform):
    """The hyper-connection operators.

    Args:
        kernels: runs them.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._spec = lru_cache(maxsize=KEPT_FORMS)(products_spec)
        self._products = launches(kernels, _products_kernel)
        self._mixes = launches(kernels, _mixes_kernel)
        self._collapse = launches(kernels, collapse_kernel)
        self._expand = launches(kernels, expand_kernel)

    def prepare_mixes(self, fn_MK: torch.Tensor) -> torch.Tensor:
        """Split the weights into parts of bf16."""
        mixes, width = fn_MK.shape
        return bf16_parts(fn_MK, products_spec(width, mixes, "bfloat16").columns)

    def mhc_mixes(
        self,
        plan: Plan,
        trunk_TSD: torch.Tensor,
        projection: torch.Tensor,
        base_M: torch.Tensor,
        scale_3: torch.Tensor,
        spec: MixSpec,
        pre_TS: torch.Tensor,
        post_TS: torch.Tensor,
        comb_TSS: torch.Tensor,
    ) -> None:
        """Compute the three mixes; the sums of pieces live in memory in between."""
        rows, streams, width = trunk_TSD.shape
        if not rows:
            return
        mixes = streams * (2 + streams)
        dtype = trunk_TSD.dtype
        products = self._spec(streams * width, mixes, dtype_name(dtype), rows)
        product_PTM = base_M.new_empty((products.pieces, rows, mixes))
        square_PT = base_M.new_empty((products.pieces, rows))
        multiply = self._products(streams * width, mixes, dtype, rows)
        multiply(
            trunk_TK=check(trunk_TSD, dtype, rows, streams, width).view(rows, -1),
            part_NK=check(projection, torch.bfloat16, products.columns, streams * width),
            product_PTM=product_PTM,
            square_PT=square_PT,
        )
        mix = self._mixes(streams, streams * width, products.pieces, products.run, spec)
        mix(
            product_PTM=product_PTM,
            square_PT=square_PT,
            base_M=check(base_M, _FP32, mixes),
            scale_3=check(scale_3, _FP32, 3),
            pre_TS=check(pre_TS, _FP32, rows, streams),
            post_TS=check(post_TS, _FP32, rows, streams),
            comb_TSS=check(comb_TSS, _FP32, rows, streams, streams),
        )

    def mhc_collapse(
        self, plan: Plan, trunk_TSD: torch.Tensor, pre_TS: torch.Tensor, out_TD: torch.Tensor
    ) -> None:
        """Sum the streams."""
        rows, streams, width = trunk_TSD.shape
        if not rows:
            return
        dtype = trunk_TSD.dtype
        collapse = self._collapse(streams, width, dtype)
        collapse(
            trunk_TSD=check(trunk_TSD, dtype, rows, streams, width),
            pre_TS=check(pre_TS, _FP32, rows, streams),
            out_TD=check(out_TD, dtype, rows, width),
        )

    def mhc_expand(
        self,
        plan: Plan,
        trunk_TSD: torch.Tensor,
        y_TD: torch.Tensor,
        post_TS: torch.Tensor,
        comb_TSS: torch.Tensor,
        out_TSD: torch.Tensor,
    ) -> None:
        """Mix the streams and add the output."""
        rows, streams, width = trunk_TSD.shape
        if not rows:
            return
        dtype = trunk_TSD.dtype
        expand = self._expand(streams, width, dtype)
        expand(
            trunk_TSD=check(trunk_TSD, dtype, rows, streams, width),
            y_TD=check(y_TD, dtype, rows, width),
            post_TS=check(post_TS, _FP32, rows, streams),
            comb_TSS=check(comb_TSS, _FP32, rows, streams, streams),
            out_TSD=check(out_TSD, dtype, rows, streams, width),
        )
