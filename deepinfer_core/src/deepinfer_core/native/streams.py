"""How are residual streams mixed by the compiled kernels?

Collapse and expansion give the bits of ``core.reference``; the mixes sum in another order.

Shapes: T rows, S streams, D width, M = S * (2 + S) mixes.
"""

from __future__ import annotations

import ctypes

import torch

from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.transform import MixSpec, Transform
from deepinfer_core.native.addresses import address
from deepinfer_core.native.library import bind
from deepinfer_core.native.tensors import type_code

__all__ = ["STREAMS", "CpuStreams"]

STREAMS = 4
"""The number that ``kernels/streams.c`` is written for."""

_FP32 = torch.float32


class CpuStreams(Transform):
    """The hyper-connection operators.

    Args:
        library: the compiled kernels.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._mixes = bind(library, "di_mhc_mixes", "plllppplffppp")
        self._collapse = bind(library, "di_mhc_collapse", "plllpp")
        self._expand = bind(library, "di_mhc_expand", "plllpppp")

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
        """Compute the three mixes."""
        rows, streams, width = trunk_TSD.shape
        mixes = streams * (2 + streams)
        self._mixes(
            address(trunk_TSD, trunk_TSD.dtype, (rows, STREAMS, width)),
            type_code(trunk_TSD.dtype),
            rows,
            streams * width,
            address(projection, _FP32, (mixes, streams * width)),
            address(base_M, _FP32, (mixes,)),
            address(scale_3, _FP32, (3,)),
            spec.sinkhorn_iterations,
            spec.eps,
            spec.norm_eps,
            address(pre_TS, _FP32, (rows, streams)),
            address(post_TS, _FP32, (rows, streams)),
            address(comb_TSS, _FP32, (rows, streams, streams)),
        )

    def mhc_collapse(
        self, plan: Plan, trunk_TSD: torch.Tensor, pre_TS: torch.Tensor, out_TD: torch.Tensor
    ) -> None:
        """Sum the streams."""
        rows, streams, width = trunk_TSD.shape
        self._collapse(
            address(trunk_TSD, trunk_TSD.dtype, (rows, STREAMS, width)),
            type_code(trunk_TSD.dtype),
            rows,
            width,
            address(pre_TS, _FP32, (rows, streams)),
            address(out_TD, trunk_TSD.dtype, (rows, width)),
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
        self._expand(
            address(trunk_TSD, trunk_TSD.dtype, (rows, STREAMS, width)),
            type_code(trunk_TSD.dtype),
            rows,
            width,
            address(y_TD, trunk_TSD.dtype, (rows, width)),
            address(post_TS, _FP32, (rows, streams)),
            address(comb_TSS, _FP32, (rows, streams, streams)),
            address(out_TSD, trunk_TSD.dtype, trunk_TSD.shape),
        )
