"""Which functions of the forward pass are compiled, and how?

`Stages()` holds the plain functions; `Stages.compiled()` the same ones through `torch.compile`.
Stages are small, so each is compiled once and serves every layer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from . import attention, layers, precision

__all__ = ["Stages"]

Stage = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """One callable for each stage; see the module of the same name for its contract."""

    prepare: Stage = precision.prepare
    collapse: Stage = layers.collapse
    mixes: Stage = layers.mixes
    expand: Stage = layers.expand
    projections: Stage = layers.projections
    output: Stage = layers.output
    experts: Stage = layers.experts
    engram: Stage = layers.engram
    quantised_keys: Stage = attention.quantised_keys
    attend: Stage = attention.attend
    attend_far: Stage = attention.attend_far
    compress_pairs: Stage = attention.compress_pairs
    compress_single: Stage = attention.compress_single
    entry_products: Stage = attention.entry_products
    index_queries: Stage = attention.index_queries
    index_scores: Stage = attention.index_scores
    pool_blocks: Stage = attention.pool_blocks
    entry_mass: Stage = attention.entry_mass
    index_loss: Stage = attention.index_loss

    @classmethod
    def compiled(cls) -> Stages:
        """Compile every stage with static shapes; a new shape compiles that stage once more."""
        plain = {f.name: getattr(cls(), f.name) for f in dataclasses.fields(cls)}
        return cls(**{k: torch.compile(v, dynamic=False) for k, v in plain.items()})
