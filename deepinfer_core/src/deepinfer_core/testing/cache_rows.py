"""Which rows of the caches may a later row of a sequence read, and what do they hold?

Shapes: R rows of a region, D width of a cache row, B blocks of a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from deepinfer_core.cache.storage import Caches
from deepinfer_core.interfaces.attention import CacheCodec, CachePages
from deepinfer_core.schedule.plan import SequenceStep

__all__ = ["Kept", "block_rows", "kept_rows", "raw_rows", "regions", "state_rows"]


class Kept(NamedTuple):
    """Rows of one region.

    Attributes:
        number_R: positions that they belong to, in units of the region.
        rows_RD: decoded, on the host.
    """

    number_R: torch.Tensor
    rows_RD: torch.Tensor


def kept_rows(
    caches: Caches, codec: CacheCodec, step: SequenceStep, window_tokens: int
) -> dict[str, Kept]:
    """All rows that a row behind a step may read, by region.

    Args:
        caches: as the step left them.
        codec: decodes them.
        step: a sequence's last one.
        window_tokens: keys that a row sees, itself included.
    """
    end = step.start + len(step.token_ids)
    seen_R = torch.arange(max(0, end - window_tokens + 1), end)
    open_R = torch.arange(end - end % 2, end)  # of an incomplete group of two
    kept = {
        name: Kept(seen_R, rows_RD)
        for name, rows_RD in state_rows(caches, codec, step.state_slot, seen_R).items()
    }
    for name, rows_RD in raw_rows(caches, codec, step.state_slot, open_R).items():
        kept[name] = Kept(open_R, rows_RD)
    for name, rows_RD in block_rows(caches, codec, step.block_ids, end).items():
        kept[name] = Kept(torch.arange(len(rows_RD)), rows_RD)
    return kept


def state_rows(
    caches: Caches, codec: CacheCodec, state_slot: int, position_R: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Window keys of all layers and the drafter's keys at some positions, by region."""
    return _ring_rows(_state_pages(caches), codec, state_slot, position_R)


def raw_rows(
    caches: Caches, codec: CacheCodec, state_slot: int, position_R: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Raw gates and values at some positions, by region."""
    return _ring_rows(_raw_pages(caches), codec, state_slot, position_R)


def regions(caches: Caches) -> dict[str, CachePages]:
    """Everything that rows are read from here, by name."""
    return _state_pages(caches) | _raw_pages(caches) | _block_pages(caches)


def _state_pages(caches: Caches) -> dict[str, CachePages]:
    state = caches.layout.state
    pages = {f"window {layer}": caches.window(layer) for layer in range(len(state.windows))}
    return pages | {f"drafter {one}": caches.drafter(one) for one in range(len(state.drafters))}


def _raw_pages(caches: Caches) -> dict[str, CachePages]:
    return {f"raw {layer}": caches.compressor(layer) for layer in caches.layout.state.compressors}


def _block_pages(caches: Caches) -> dict[str, CachePages]:
    block = caches.layout.block
    pages = {f"entries {layer}": caches.entries(layer) for layer in block.entries}
    return pages | {f"index keys {layer}": caches.index_keys(layer) for layer in block.index_keys}


def _ring_rows(
    pages: dict[str, CachePages], codec: CacheCodec, state_slot: int, position_R: torch.Tensor
) -> dict[str, torch.Tensor]:
    found = {}
    for name, ring in pages.items():
        place_R = state_slot * ring.rows_per_page + position_R % ring.rows_per_page
        found[name] = _loaded(codec, ring, place_R)
    return found


def block_rows(
    caches: Caches, codec: CacheCodec, block_ids: Sequence[int], tokens: int
) -> dict[str, torch.Tensor]:
    """Entries and index keys of the first so many tokens of a sequence, by region."""
    block, found = caches.layout.block, {}
    block_B = torch.tensor(list(block_ids))
    for name, region in _block_pages(caches).items():
        size = region.rows_per_page
        number_R = torch.arange(tokens * size // block.block_tokens)
        place_R = block_B[number_R // size] * size + number_R % size
        found[name] = _loaded(codec, region, place_R)
    return found


def _loaded(codec: CacheCodec, pages: CachePages, place_R: torch.Tensor) -> torch.Tensor:
    device = pages.data_PB.device
    out_RD = torch.empty(len(place_R), pages.width, device=device)
    codec.load(pages, place_R.to(device), out_RD)
    return out_RD.cpu()
