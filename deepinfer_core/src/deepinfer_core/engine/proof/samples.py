"""On which rows, and on which cached keys, do trials run?

Shapes: P rows of a pool, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from deepinfer_core.cache.storage import Caches
from deepinfer_core.engine.proof.trial import POOL_ROWS
from deepinfer_core.interfaces.attention import CachePages
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.caches import allocate_caches

__all__ = ["SEQUENCES", "Samples"]

SEQUENCES = 3
"""Sequences that the scratch caches have room for."""

_SEED = 20261


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Random numbers and scratch memory of one proof; the same in every proof of a model.

    Attributes:
        model: the loaded model.
        caches: of its layout, with one block and one state slot for each of a few sequences.
        generator: of all random numbers.
    """

    model: TextModel
    caches: Caches
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(_SEED))

    @classmethod
    def of(cls, model: TextModel) -> Samples:
        """Allocate the scratch caches.

        Raises:
            DeviceError: there is no memory even for them.
        """
        parts = model.parts
        caches = allocate_caches(
            model.config,
            parts.numerics,
            parts.codec,
            parts.device,
            num_blocks=1 + SEQUENCES,
            num_slots=1 + SEQUENCES,
            max_backtracking=model.config.verified_rows,
        )
        return cls(model=model, caches=caches)

    def rows(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        """Normal numbers [P, *shape]; rows differ in size from 1/16 to 16.

        A scale or a maximum that is taken over a batch in place of a row shows by that.
        """
        size = torch.exp2(torch.arange(POOL_ROWS) - 4.0).view(-1, *[1] * len(shape))
        return (self._normal(POOL_ROWS, *shape) * size).to(self.device, dtype)

    def even_rows(self, count: int, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        """Normal numbers [count, *shape], all of size 1.

        For queries, keys and logits: with larger ones a single key or token takes everything, and
        the order of a sum leaves no trace.
        """
        return self._normal(count, *shape).to(self.device, dtype)

    def _normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator)

    def integers(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """Random int64 from ``low`` up to ``high``, exclusive."""
        drawn = torch.randint(low, high, shape, generator=self.generator)
        return drawn.to(self.device)

    def slots(self, pages: CachePages, length: int) -> torch.Tensor:
        """Lists of slots of filled pages [P, length], one in nine absent."""
        rows = row_count(pages)
        return self.integers(-(rows // 8) - 1, rows, POOL_ROWS, length).clamp_(min=-1)

    def fill(self, pages: CachePages) -> CachePages:
        """Store a random row of the compute dtype in every slot."""
        rows = row_count(pages)
        x_TD = self.even_rows(rows, pages.width, dtype=self.model.rows.compute)
        self.model.parts.codec.store(x_TD, torch.arange(rows, device=self.device), pages)
        return pages

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return self.model.parts.device.torch_device


def row_count(pages: CachePages) -> int:
    """Slots of all pages."""
    return pages.data_PB.shape[0] * pages.rows_per_page
