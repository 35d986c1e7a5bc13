"""In which number formats does a forward pass compute, and what does it round?

Production arithmetic keeps activations in bf16, quantises the inputs of FP8 products and the
caches, and accumulates in fp32. Semantic arithmetic rounds nothing that can be left alone;
it exists to compare implementations. Source: DeepSeek-V4.1-Flash checkpoint formats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["ComputeDtype", "Numerics"]

ComputeDtype = Literal["bfloat16", "float32", "float64"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """The roundings of one forward pass.

    Attributes:
        compute: dtype that activations are stored in between operators.
        activation_quantisation: round the inputs of FP8 and FP4 products to e4m3 per 32 channels.
        cache_quantisation: keep caches in their quantised forms; otherwise in ``compute``.
    """

    compute: ComputeDtype = "bfloat16"
    activation_quantisation: bool = True
    cache_quantisation: bool = True

    @property
    def accumulate(self) -> Literal["float32", "float64"]:
        """Dtype of sums, mixes, logits and routing weights."""
        return "float64" if self.compute == "float64" else "float32"

    @property
    def window_format(self) -> str:
        """Format of sliding-window and drafter keys."""
        return "mxfp8" if self.cache_quantisation else self.compute

    @property
    def entry_format(self) -> str:
        """Format of compressed entries."""
        return "fp4_e4m3x16" if self.cache_quantisation else self.compute

    @property
    def index_format(self) -> str:
        """Format of index keys, and of index queries before scoring."""
        return "mxfp4" if self.cache_quantisation else self.compute

    @property
    def activation_format(self) -> str:
        """Format that inputs of quantised products are rounded to; ``compute``: not at all."""
        return "mxfp8" if self.activation_quantisation else self.compute
