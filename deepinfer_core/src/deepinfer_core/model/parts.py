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
