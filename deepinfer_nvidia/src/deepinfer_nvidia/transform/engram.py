"""How does the n-gram memory enter the residual streams by kernels in TileLang?

Hashes are those of ``core.reference``; the gates sum in another order.

Shapes: T rows, N n-gram size, C hash columns, S streams, D width.
"""

from __future__ import annotations

import torch
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.interfaces.operators.transform import EngramGateSpec, EngramRowsSpec
from deepinfer_core.interfaces.transform import EngramHash, Transform

from deepinfer_nvidia.kernels import transform_engram_gate, transform_engram_rows
from deepinfer_nvidia.kernels.arguments import check, dtype_name, sliced

__all__ = ["TileLangEngram"]

_INT64, _BOOL = torch.int64, torch.bool


class TileLangEngram(Transform):
    """The two Engram operators.

    Args:
        kernels: runs them.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._hashes: list[tuple[EngramHash, EngramRowsSpec]] = []

    def engram_rows(
        self, plan: Plan, compressed_TN: torch.Tensor, spec: EngramHash, row_TC: torch.Tensor
    ) -> None:
        """Hash."""
        rows, size = compressed_TN.shape
        if not rows:
            return
        compiled = self._compiled(spec)
        self._kernels.call(
            transform_engram_rows.build,
            compiled,
            transform_engram_rows.default_tuning(compiled),
            compressed_TN=check(compressed_TN.contiguous(), _INT64, rows, size),
            row_TC=check(row_TC, _INT64, rows, len(compiled.primes)),
        )

    def _compiled(self, spec: EngramHash) -> EngramRowsSpec:
        """The hash as numbers; a model has one a layer with memory."""
        for known, compiled in self._hashes:
            if known is spec:
                return compiled
        known_here = spec.on_host or spec
        compiled = EngramRowsSpec(
            multipliers=tuple(known_here.multiplier_N.tolist()),
            primes=tuple(known_here.prime_C.tolist()),
            offsets=tuple(known_here.offset_C.tolist()),
            orders=tuple(known_here.order_C.tolist()),
        )
        self._hashes.append((spec, compiled))
        return compiled

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
        if not rows:
            return
        dtype, weight_dtype = trunk_TSD.dtype, query_weight_SD.dtype
        if key_TSD.stride(1) != width:
            key_TSD = key_TSD.contiguous()
        key_TSD, value_TD = sliced(key_TSD), sliced(value_TD)
        spec = EngramGateSpec(
            streams=streams,
            width=width,
            dtype=dtype_name(dtype),
            weight_dtype=dtype_name(weight_dtype),
            norm_eps=norm_eps,
            key_stride=key_TSD.stride(0),
            value_stride=value_TD.stride(0),
        )
        self._kernels.call(
            transform_engram_gate.build,
            spec,
            transform_engram_gate.default_tuning(spec),
            trunk_TSD=check(trunk_TSD, dtype, rows, streams, width),
            key_TSD=key_TSD,
            value_TD=value_TD,
            query_weight_SD=check(query_weight_SD, weight_dtype, streams, width),
            key_weight_SD=check(key_weight_SD, weight_dtype, streams, width),
            image_T=check(image_T, _BOOL, rows),
            out_TSD=check(out_TSD, dtype, rows, streams, width),
        )
