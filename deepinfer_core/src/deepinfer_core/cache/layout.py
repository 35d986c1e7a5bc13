"""Which bytes of a block and of a state slot hold what?

A *block* holds the compressed entries and index keys of ``block_tokens`` consecutive tokens, for
each layer that owns some. A *state slot* holds everything of a sequence whose size is bounded::

    block:  entries of owner 1 | index keys of owner 1 | entries of owner 2 | ...
    state:  encoder rings | decoder rings | drafter rings | compressor rings

The encoder rings come first and without gaps, because they alone are stored with a prefix. Position
p of a sequence lives in row ``p mod ring`` of each of its rings, so that rejected rows are simply
overwritten. Nothing here knows torch: the arithmetic is the same for every device.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import lcm

from deepinfer_core.cache.needs import CacheFormats, CacheNeeds

__all__ = [
    "BlockLayout",
    "CacheLayout",
    "Region",
    "StateLayout",
    "cache_layout",
]

REGION_ALIGNMENT_BYTES = 32
"""Every region of a block, and every group of rings, starts at a multiple of this."""

BLOCK_ALIGNMENT_BYTES = 128
"""Together with the bytes of an entry this fixes the stride from block to block."""

RowBytes = Callable[[str, int], int]
"""Bytes of one row of a format and width; ``CacheCodec.row_bytes``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Rows of one format at a fixed place in every page.

    Attributes:
        offset_bytes: from the start of the page.
        rows: rows in a page.
        row_bytes: bytes of a row, data and scales.
        width: channels of a row.
        number_format: how a row is encoded.
        scales_apart: all data of the page first, then all scales.
    """

    offset_bytes: int
    rows: int
    row_bytes: int
    width: int
    number_format: str
    scales_apart: bool = False

    @property
    def size_bytes(self) -> int:
        """Bytes of the region in one page."""
        return self.rows * self.row_bytes

    @property
    def end_bytes(self) -> int:
        """Offset of the first byte behind the region."""
        return self.offset_bytes + self.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLayout:
    """One block of the pool.

    Attributes:
        block_tokens: tokens that a block covers.
        entries: region of compressed entries by owner layer.
        index_keys: region of index keys by owner layer.
        used_bytes: bytes that hold something.
        stride_bytes: from block to block.
    """

    block_tokens: int
    entries: Mapping[int, Region]
    index_keys: Mapping[int, Region]
    used_bytes: int
    stride_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLayout:
    """One state slot.

    Attributes:
        ring_tokens: rows of a ring: the window, and the rows that a step may write beyond the
            last accepted token.
        compressor_tokens: rows of a compressor ring.
        windows: ring of each layer.
        drafters: ring of each draft layer.
        compressors: raw gate and value by owner layer, ratio 2 only.
        stored_bytes: the leading bytes that are stored with a prefix.
        used_bytes: bytes that hold something.
        stride_bytes: from slot to slot.
    """

    ring_tokens: int
    compressor_tokens: int
    windows: tuple[Region, ...]
    drafters: tuple[Region, ...]
    compressors: Mapping[int, Region]
    stored_bytes: int
    used_bytes: int
    stride_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLayout:
    """Blocks and state slots of one model in one choice of formats.

    Attributes:
        block: of a block.
        state: of a state slot.
        max_backtracking: most rows of a sequence that a step may feed and later take back.
    """

    block: BlockLayout
    state: StateLayout
    max_backtracking: int


def cache_layout(
    needs: CacheNeeds,
    formats: CacheFormats,
    row_bytes: RowBytes,
    *,
    max_backtracking: int,
    block_tokens: int = 128,
) -> CacheLayout:
    """Place every region.

    A ring has ``window + max_backtracking`` rows: a step writes so many rows at most, and its
    first row's window must still be whole. A compressor ring holds a group and all of them but one.

    Args:
        needs: what the model keeps.
        formats: how it keeps it.
        row_bytes: bytes of a row of a format, from the cache codec.
        max_backtracking: at least 1.
        block_tokens: a multiple of every ratio.

    Raises:
        ValueError: ``max_backtracking`` is below 1, or a ratio does not divide ``block_tokens``.
    """
    if max_backtracking < 1:
        raise ValueError(f"max_backtracking must be at least 1, found {max_backtracking}")
    return CacheLayout(
        block=_block_layout(needs, formats, row_bytes, block_tokens),
        state=_state_layout(needs, formats, row_bytes, max_backtracking),
        max_backtracking=max_backtracking,
    )


def _aligned(offset_bytes: int, alignment_bytes: int = REGION_ALIGNMENT_BYTES) -> int:
    return -(-offset_bytes // alignment_bytes) * alignment_bytes


def _block_layout(
    needs: CacheNeeds, formats: CacheFormats, row_bytes: RowBytes, block_tokens: int
) -> BlockLayout:
    entry_bytes = row_bytes(formats.entry, needs.head_width)
    index_bytes = row_bytes(formats.index, needs.index_width)
    entries: dict[int, Region] = {}
    index_keys: dict[int, Region] = {}
    end_bytes = 0
    for layer, ratio in sorted(needs.entry_ratios.items()):
        if block_tokens % ratio:
            raise ValueError(f"blocks of {block_tokens} tokens do not hold groups of {ratio}")
        entries[layer] = Region(
            offset_bytes=_aligned(end_bytes),
            rows=block_tokens // ratio,
            row_bytes=entry_bytes,
            width=needs.head_width,
            number_format=formats.entry,
        )
        end_bytes = entries[layer].end_bytes
        if layer in needs.index_owners:
            index_keys[layer] = Region(
                offset_bytes=_aligned(end_bytes),
                rows=block_tokens // ratio,
                row_bytes=index_bytes,
                width=needs.index_width,
                number_format=formats.index,
                scales_apart=True,
            )
            end_bytes = index_keys[layer].end_bytes
    regions = (*entries.values(), *index_keys.values())
    return BlockLayout(
        block_tokens=block_tokens,
        entries=entries,
        index_keys=index_keys,
        used_bytes=sum(region.size_bytes for region in regions),
        stride_bytes=_aligned(end_bytes, lcm(BLOCK_ALIGNMENT_BYTES, entry_bytes)),
    )


def _state_layout(
    needs: CacheNeeds, formats: CacheFormats, row_bytes: RowBytes, max_backtracking: int
) -> StateLayout:
    ring_tokens = needs.window_tokens + max_backtracking
    key_bytes = row_bytes(formats.window, needs.head_width)
    raw_tokens, raw_width = 2 + max_backtracking - 1, 2 * needs.head_width
    raw_bytes = row_bytes(formats.raw, raw_width)

    width = needs.head_width

    def rings(count: int, before: tuple[Region, ...]) -> tuple[Region, ...]:
        return _row_of_regions(count, before, ring_tokens, key_bytes, width, formats.window)

    encoders = rings(needs.encoder_layers, ())
    windows = encoders + rings(needs.layers - needs.encoder_layers, encoders)
    drafters = rings(needs.draft_layers, windows)
    pairs = [layer for layer, ratio in sorted(needs.entry_ratios.items()) if ratio == 2]
    raw = _row_of_regions(
        len(pairs), windows + drafters, raw_tokens, raw_bytes, raw_width, formats.raw
    )
    regions = windows + drafters + raw
    return StateLayout(
        ring_tokens=ring_tokens,
        compressor_tokens=raw_tokens,
        windows=windows,
        drafters=drafters,
        compressors=dict(zip(pairs, raw, strict=True)),
        stored_bytes=sum(region.size_bytes for region in encoders),
        used_bytes=sum(region.size_bytes for region in regions),
        stride_bytes=_aligned(_end_bytes(regions), lcm(REGION_ALIGNMENT_BYTES, key_bytes)),
    )


def _row_of_regions(
    count: int,
    before: tuple[Region, ...],
    rows: int,
    row_bytes: int,
    width: int,
    number_format: str,
) -> tuple[Region, ...]:
    """Equal regions without gaps, from the first aligned place behind others."""
    start_bytes = _aligned(_end_bytes(before))
    return tuple(
        Region(
            offset_bytes=start_bytes + number * rows * row_bytes,
            rows=rows,
            row_bytes=row_bytes,
            width=width,
            number_format=number_format,
        )
        for number in range(count)
    )


def _end_bytes(regions: tuple[Region, ...]) -> int:
    return max((region.end_bytes for region in regions), default=0)
