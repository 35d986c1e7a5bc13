"""Which components does the model call, and in which numerics?

One frozen value that the engine fills from the resolved choice; the model never asks a registry.
"""

from dataclasses import dataclass

from deepinfer_core.interfaces.all_to_all import AllToAll
from deepinfer_core.interfaces.attention import CacheCodec, Indexer, SparseAttention
from deepinfer_core.interfaces.device import Device
from deepinfer_core.interfaces.gemm import DenseGemm, GroupedGemm
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.interfaces.transform import Transform

__all__ = ["ModelParts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelParts:
    """The components that a forward pass runs on."""

    device: Device
    prefill: SparseAttention
    decode: SparseAttention
    indexer: Indexer
    codec: CacheCodec
    dense: DenseGemm
    grouped: GroupedGemm
    transform: Transform
    all_to_all: AllToAll
    numerics: Numerics

    @property
    def rounding(self) -> str | None:
        """Format that rows are rounded to for quantised products by what makes them.

        None where nothing is rounded, or the products do it themselves.
        """
        wants = self.dense.wants_rounded_rows and self.grouped.wants_rounded_rows
        is_quantised = self.numerics.activation_quantisation
        return self.numerics.activation_format if is_quantised and wants else None

    @property
    def product_format(self) -> str:
        """What quantised products are asked to round their rows to."""
        return "bfloat16" if self.rounding else self.numerics.activation_format
