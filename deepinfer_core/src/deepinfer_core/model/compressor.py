"""How do tokens become compressed entries and index keys?

A layer with ratio 2 blends each pair of tokens by a learned softmax over the two, channel by
channel; with ratio 1 every token is an entry of its own and there is no gate. The normed result is
cached twice: rotated, as a key to attend to, and projected to a narrow index key. Unrotated it is
never kept.

Shapes: T rows, D hidden width, W head width, J index width.
"""

from dataclasses import dataclass

import torch

from deepinfer_core.interfaces.attention import CacheCodec
from deepinfer_core.model.context import StepContext
from deepinfer_core.model.operators import Linear
from deepinfer_core.model.row_operators import RowOperators

__all__ = ["Compressor", "IndexKeys"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexKeys:
    """The projection of a latent to its index key, and the key's norm weight [J]."""

    project: Linear
    norm_J: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Compressor:
    """The compressor of one layer.

    Attributes:
        layer: number of the layer, which owns the cache regions.
        ratio: tokens of an entry, 1 or 2.
        rows: row operators.
        codec: writes the caches.
        value: hidden to head width.
        gate: hidden to one gate a channel; None for ratio 1.
        norm_W: weight of the latent's norm.
        index: index keys; None if the layer owns none.
    """

    layer: int
    ratio: int
    rows: RowOperators
    codec: CacheCodec
    value: Linear
    gate: Linear | None
    norm_W: torch.Tensor
    index: IndexKeys | None

    def __call__(self, x_TD: torch.Tensor, step: StepContext) -> None:
        """Write the entries, and index keys, that the rows complete."""
        entries = step.entries[self.ratio]
        by, blended_TW = entries.rotation, self._blended(x_TD, step)
        if self.index is None:
            entry_TW = self.rows.norm_rotate(blended_TW, self.norm_W, by)
        else:
            latent_TW, entry_TW = self.rows.norm_and_rotate(blended_TW, self.norm_W, by)
            projected_TJ = self.index.project(latent_TW)
            key_TJ = self.rows.norm_rotate(projected_TJ, self.index.norm_J, by)
            self.codec.store(key_TJ, entries.slot_T, step.caches.index_keys(self.layer))
        self.codec.store(entry_TW, entries.slot_T, step.caches.entries(self.layer))

    def _blended(self, x_TD: torch.Tensor, step: StepContext) -> torch.Tensor:
        value_TW = self.value(x_TD)
        if self.gate is None:
            return value_TW
        assert step.pairs is not None
        latent_TW = torch.empty_like(value_TW, dtype=self.rows.compute)
        self.codec.compress_pairs(
            value_TW,
            self.gate(x_TD),
            step.pairs.slot_T,
            step.pairs.partner_slot_T,
            step.pairs.partner_row_T,
            step.caches.compressor(self.layer),
            latent_TW,
        )
        return latent_TW
