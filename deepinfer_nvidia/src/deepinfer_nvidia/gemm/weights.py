"""What becomes of a weight when it is handed over?

| weight | kept as |
|---|---|
| dense, any format with scales, or bf16 | bf16, which holds every value exactly |
| dense or experts, fp32 | as it is |
| experts, ``mxfp4`` | packed, in the order of registers (Hopper) or as stored |
| experts, other formats | as dense |
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.numeric import QuantTensor

from deepinfer_nvidia.gemm.packing import pack_experts, unpack_experts

__all__ = ["PackedExperts", "PlainWeight", "StoredExperts", "pack", "store", "widen"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlainWeight:
    """Plain numbers.

    Attributes:
        values: bf16 or fp32, [N, K] or [E, N, K].
    """

    values: torch.Tensor

    @property
    def memory_bytes(self) -> int:
        """Bytes of the numbers."""
        return self.values.nbytes

    def dequantise(self) -> torch.Tensor:
        """The values in fp32."""
        return self.values.to(torch.float32)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoredExperts:
    """MXFP4 experts as the checkpoint has them.

    Attributes:
        stored: [E, N, K], contiguous.
    """

    stored: QuantTensor

    @property
    def memory_bytes(self) -> int:
        """Bytes of data and scales."""
        return self.stored.nbytes

    def dequantise(self) -> torch.Tensor:
        """The values in fp32."""
        return self.stored.dequantise(torch.float32)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedExperts:
    """MXFP4 experts in the order of registers; see ``packing``.

    Attributes:
        packed: uint8 [E, tiles, records, bytes].
        out_width: N.
        in_width: K.
    """

    packed: torch.Tensor
    out_width: int
    in_width: int

    @property
    def memory_bytes(self) -> int:
        """Bytes of the records, padding included."""
        return self.packed.nbytes

    def dequantise(self) -> torch.Tensor:
        """The values in fp32."""
        stored = unpack_experts(self.packed, self.out_width, self.in_width)
        return stored.dequantise(torch.float32)


def widen(weight: QuantTensor) -> PlainWeight:
    """Plain numbers without loss.

    Raises:
        NotSupported: fp64.
    """
    if weight.format == "float64":
        raise NotSupported(
            "asked for products with float64 weights, found kernels for bfloat16 and float32",
            hint="core.reference computes in float64",
        )
    dtype = torch.float32 if weight.format == "float32" else torch.bfloat16
    values = weight.dequantise(dtype)
    if weight.scale is not None:
        _check_range(weight, values)
    return PlainWeight(values=values.contiguous())


def store(weight: QuantTensor) -> StoredExperts:
    """MXFP4 as it is."""
    assert weight.scale is not None
    data, scale = weight.data.view(torch.uint8).contiguous(), weight.scale.contiguous()
    return StoredExperts(stored=QuantTensor(data=data, scale=scale, format=weight.format))


def pack(weight: QuantTensor) -> PackedExperts:
    """MXFP4 in the order of registers.

    Raises:
        NotSupported: scales out of the range that the kernel handles.
    """
    out_width, in_width = weight.shape[1:]
    return PackedExperts(packed=pack_experts(weight), out_width=out_width, in_width=in_width)


def _check_range(weight: QuantTensor, values: torch.Tensor) -> None:
    """Refuse weights whose scale leads out of the normal numbers of bf16."""
    if values.is_meta:
        return  # a rehearsal, in which there are no numbers
    largest = values.abs().amax() if values.numel() else values.new_zeros(())
    small = (values != 0) & (values.abs() < torch.finfo(torch.bfloat16).tiny)
    if not bool(largest.isfinite()) or bool(small.any()):
        raise NotSupported(
            f"asked for {weight.format} weights in bfloat16, found values outside its normal"
            f" numbers (largest {float(largest):g})",
            hint="check the scales of the checkpoint; core.reference computes with any scale",
        )
