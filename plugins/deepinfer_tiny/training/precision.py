"""Which values are rounded during a forward pass?

`TRAINING` rounds everything the shipped model rounds: weights, activations before FP8 products and
cached keys. `EXACT` rounds nothing and is what golden values are compared with.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .formats import fake_block32, fake_mxfp4

__all__ = ["EXACT", "SCORING", "TRAINING", "Precision", "prepare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Storage type of activations and the three groups of quantisers."""

    dtype: torch.dtype
    weights: bool
    activations: bool
    caches: bool


EXACT = Precision(dtype=torch.float32, weights=False, activations=False, caches=False)
TRAINING = Precision(dtype=torch.bfloat16, weights=True, activations=True, caches=True)
SCORING = Precision(dtype=torch.float32, weights=True, activations=True, caches=True)

_FP8 = {"wq_a", "wq_b", "wkv", "wo_a", "wo_b", "shared_w1", "shared_w2", "shared_w3"}
_FP8 |= {"index_wq", "main_proj"}
_FP4 = {"w1", "w2", "w3"}
_FP32 = {"sink", "gate_bias", "gate_bias_vl"}


def prepare(params: dict[str, torch.Tensor], precision: Precision) -> dict[str, torch.Tensor]:
    """Master weights as one forward pass sees them.

    Engram tables stay as they are: their rows are quantised after the lookup.
    """
    found = {}
    for name, value in params.items():
        leaf = name.rsplit(".", 1)[-1]
        if leaf in _FP32 or leaf.startswith("hc_") or "table" in leaf:
            found[name] = value
        elif precision.weights and leaf in _FP4:
            found[name] = fake_mxfp4(value).to(precision.dtype)
        elif precision.weights and leaf in _FP8:
            found[name] = fake_block32(value).to(precision.dtype)
        elif precision.weights:
            found[name] = value.bfloat16().to(precision.dtype)
        else:
            found[name] = value.to(precision.dtype)
    return found
