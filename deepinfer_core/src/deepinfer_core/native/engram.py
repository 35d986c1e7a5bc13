"""How does the n-gram memory enter the residual streams by the compiled kernels?

Hashes are those of ``core.reference``; the gates sum in another order.

Shapes: T rows, N n-gram size, C hash columns, S streams, D width.
"""

from __future__ import annotations

import ctypes

import torch

from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.transform import EngramHash, Transform
from deepinfer_core.native.addresses import address, row_major, slice_address
from deepinfer_core.native.library import bind
from deepinfer_core.native.tensors import type_code

__all__ = ["CpuEngram"]

_INT64, _BOOL = torch.int64, torch.bool


class CpuEngram(Transform):
    """The two Engram operators.

    Args:
        library: the compiled kernels.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._engram_rows = bind(library, "di_engram_rows", "pllpppplp")
        self._engram_gate = bind(library, "di_engram_gate", "pllllplplpplpfp")

    def engram_rows(
        self, plan: Plan, compressed_TN: torch.Tensor, spec: EngramHash, row_TC: torch.Tensor
    ) -> None:
        """Hash."""
        rows, size = compressed_TN.shape
        columns = spec.prime_C.shape[0]
        ids_TN = row_major(compressed_TN)
        self._engram_rows(
            address(ids_TN, _INT64, (rows, size)),
            rows,
            size,
            address(spec.multiplier_N, _INT64, (size,)),
            address(spec.prime_C, _INT64, (columns,)),
            address(spec.offset_C, _INT64, (columns,)),
            address(spec.order_C, _INT64, (columns,)),
            columns,
            address(row_TC, _INT64, (rows, columns)),
        )

    def engram_gate(
        self,
        plan: Plan,
        trunk_TSD: torch.Tensor,
        key_TSD: torch.Tensor,
        value_TD: torch.Tensor,
        query_weight_SD: torch.Tensor,
        key_weight_SD: torch.Tensor,
        image_T: torch.Tensor,
        norm_eps: float,
        out_TSD: torch.Tensor,
    ) -> None:
        """Add the gated values; keys and values of a row may be slices of a longer row."""
        rows, streams, width = trunk_TSD.shape
        dtype, weight_dtype = trunk_TSD.dtype, query_weight_SD.dtype
        if key_TSD.stride()[1:] != (width, 1):
            key_TSD = key_TSD.contiguous()
        if value_TD.stride(1) != 1:
            value_TD = value_TD.contiguous()
        self._engram_gate(
            address(trunk_TSD, dtype, trunk_TSD.shape),
            type_code(dtype),
            rows,
            streams,
            width,
            slice_address(key_TSD, dtype, trunk_TSD.shape),
            key_TSD.stride(0),
            slice_address(value_TD, dtype, (rows, width)),
            value_TD.stride(0),
            address(query_weight_SD, weight_dtype, (streams, width)),
            address(key_weight_SD, weight_dtype, (streams, width)),
            type_code(weight_dtype),
            address(image_T, _BOOL, (rows,)),
            norm_eps,
            address(out_TSD, dtype, trunk_TSD.shape),
        )
