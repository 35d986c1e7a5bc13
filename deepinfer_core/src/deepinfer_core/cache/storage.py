"""Where is the memory of the caches, and how does a layer reach its part?

Two byte tensors hold everything: the blocks of all sequences and the state slots of all sequences.
The pages handed out are strided views into them; nothing is copied. Whole blocks and state slots
can be copied, many in one call: that is how a state is kept for later and restored.

Shapes: P blocks or state slots, B bytes of one.
"""

from collections.abc import Mapping, Sequence

import torch

from deepinfer_core.cache.layout import CacheLayout, Region
from deepinfer_core.errors import EngineError
from deepinfer_core.interfaces.attention import CachePages
from deepinfer_core.interfaces.device import Device

__all__ = ["Caches"]


class Caches:
    """The memory of one engine's caches. Block 0 and state slot 0 are dummies, but are real memory.

    Args:
        layout: where each region lies in a block and in a state slot.
        device: gives the zeroed memory.
        num_blocks: blocks, the dummy included.
        num_slots: state slots, the dummy included.

    Raises:
        DeviceError: there is not enough memory.
    """

    def __init__(
        self, layout: CacheLayout, device: Device, *, num_blocks: int, num_slots: int
    ) -> None:
        self.layout = layout
        self._device = device
        self.blocks_PB = device.zeros((num_blocks, layout.block.stride_bytes), torch.uint8)
        self.states_PB = device.zeros((num_slots, layout.state.stride_bytes), torch.uint8)
        state, block = layout.state, layout.block
        self._windows = tuple(_pages(self.states_PB, region) for region in state.windows)
        self._drafters = tuple(_pages(self.states_PB, region) for region in state.drafters)
        self._compressors = _all_pages(self.states_PB, state.compressors)
        self._entries = _all_pages(self.blocks_PB, block.entries)
        self._index_keys = _all_pages(self.blocks_PB, block.index_keys)

    def window(self, layer: int) -> CachePages:
        """Rings of a layer's window keys, one page a state slot."""
        return self._windows[layer]

    def drafter(self, number: int) -> CachePages:
        """Rings of a draft layer's keys, one page a state slot."""
        return self._drafters[number]

    def compressor(self, layer: int) -> CachePages:
        """Rings of raw gates and values of a layer that compresses pairs, one page a state slot."""
        return self._compressors[layer]

    def entries(self, layer: int) -> CachePages:
        """Compressed entries of a layer that owns some, one page a block."""
        return self._entries[layer]

    def index_keys(self, layer: int) -> CachePages:
        """Index keys of a layer that owns some, one page a block."""
        return self._index_keys[layer]

    def copy_slots(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole state slots.

        All sources are read before anything is written, so a slot may be a source of several pairs,
        and the source of one pair and the destination of another.

        Args:
            pairs: (source, destination) of each copy, in any order.

        Raises:
            EngineError: a slot does not exist, or is the destination of two pairs; nothing was
                copied.
        """
        _copy_pages(self._device, self.states_PB, pairs, "state slot")

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks; see ``copy_slots``.

        Args:
            pairs: (source, destination) of each copy, in any order.

        Raises:
            EngineError: a block does not exist, or is the destination of two pairs; nothing was
                copied.
        """
        _copy_pages(self._device, self.blocks_PB, pairs, "block")


def _all_pages(memory_PB: torch.Tensor, regions: Mapping[int, Region]) -> dict[int, CachePages]:
    return {layer: _pages(memory_PB, region) for layer, region in regions.items()}


def _copy_pages(
    device: Device, memory_PB: torch.Tensor, pairs: Sequence[tuple[int, int]], title: str
) -> None:
    if not pairs:
        return
    sources, destinations = zip(*pairs, strict=True)
    for page in (*sources, *destinations):
        if not 0 <= page < memory_PB.shape[0]:
            raise EngineError(f"{title} {page} was to be copied, of {memory_PB.shape[0]}")
    if len(set(destinations)) < len(destinations):
        raise EngineError(f"{title}s {list(destinations)} were to be written, some of them twice")
    host_2C = device.host_buffer((2, len(pairs)), torch.int64)
    host_2C.numpy()[:] = sources, destinations
    from_C, to_C = host_2C.to(memory_PB.device, non_blocking=True).unbind()
    # The gathered rows are memory of their own: that is what makes the order of pairs irrelevant.
    memory_PB.index_copy_(0, to_C, memory_PB.index_select(0, from_C))


def _pages(memory_PB: torch.Tensor, region: Region) -> CachePages:
    return CachePages(
        data_PB=memory_PB[:, region.offset_bytes : region.end_bytes],
        rows_per_page=region.rows,
        width=region.width,
        number_format=region.number_format,
        scales_apart=region.scales_apart,
    )
