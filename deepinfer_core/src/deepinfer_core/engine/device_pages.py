"""How are blocks and states copied between a device and memory that processes share?"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from deepinfer_core.cache.storage import Caches
from deepinfer_core.engine.page_memory import PageMemory
from deepinfer_core.interfaces.device import Device, Event, Stream

__all__ = ["DevicePages"]


class DevicePages(PageMemory):
    """The caches of one engine.

    Shared memory is pinned when it is first met, and stays so: there is not much of it, and all of
    it is used again and again.

    Args:
        caches: their memory.
        device: that it is on.
        stream: of the engine's steps.
    """

    def __init__(self, caches: Caches, device: Device, stream: Stream) -> None:
        self._blocks_PB = caches.blocks_PB
        self._states_PB = caches.states_PB
        self._device = device
        self._stream = stream
        # A tensor keeps its memory mapped, so no other memory comes to have a known address.
        self._pinned: dict[int, torch.Tensor] = {}

    def write(
        self, pages: Sequence[int], memories: Sequence[memoryview], *, is_state: bool = False
    ) -> Event:
        """Queue one copy for each page; see ``PageMemory``."""
        rows = self._rows(pages, memories, is_state)
        hosts = [self._host(one) for one in memories]

        @torch.inference_mode()
        def work() -> None:
            for row_B, host_B in zip(rows, hosts, strict=True):
                row_B.copy_(host_B, non_blocking=True)

        return self._stream.submit(work)

    def read(
        self, pages: Sequence[int], memories: Sequence[memoryview], *, is_state: bool = False
    ) -> Event:
        """Queue one copy for each page; see ``PageMemory``."""
        rows = self._rows(pages, memories, is_state)
        hosts = [self._host(one) for one in memories]

        @torch.inference_mode()
        def work() -> None:
            for row_B, host_B in zip(rows, hosts, strict=True):
                host_B.copy_(row_B, non_blocking=True)

        return self._stream.submit(work)

    def close(self) -> None:
        """Let go of shared memory; nothing is under way."""
        for host_B in self._pinned.values():
            self._device.unpin(host_B)
        self._pinned.clear()

    def _rows(
        self, pages: Sequence[int], memories: Sequence[memoryview], is_state: bool
    ) -> list[torch.Tensor]:
        """The leading bytes of each page, as many as its memory has."""
        memory_PB = self._states_PB if is_state else self._blocks_PB
        return [memory_PB[page, : len(one)] for page, one in zip(pages, memories, strict=True)]

    def _host(self, memory: memoryview) -> torch.Tensor:
        host_B = torch.frombuffer(memory, dtype=torch.uint8)
        known = self._pinned.setdefault(host_B.data_ptr(), host_B)
        if known is host_B:
            self._device.pin(host_B)
        return known
