"""How do the pages of the fake runner come to a store, and from it?"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from deepinfer_core.engine.page_memory import PageMemory
from deepinfer_core.interfaces.device import Event
from deepinfer_core.interfaces.kv_store import LAYOUT_BYTES, BlockGroup
from deepinfer_core.testing.fake_runner import FakeRunner

__all__ = ["FakePages", "fake_groups"]

_WORD_BYTES = 4


def fake_groups(block_tokens: int, longest: int) -> tuple[BlockGroup, BlockGroup]:
    """The groups of an engine over the fake runner: blocks, and states.

    Args:
        block_tokens: tokens of a block.
        longest: tokens of the longest text.
    """
    return (
        BlockGroup(
            name="blocks",
            number_format="tokens",
            layout=bytes(LAYOUT_BYTES),
            block_tokens=block_tokens,
            block_bytes=_WORD_BYTES * block_tokens,
            reuse="leading",
            replay_tokens=0,
            retention="agent",
        ),
        BlockGroup(
            name="state",
            number_format="tokens",
            layout=bytes(LAYOUT_BYTES),
            block_tokens=block_tokens,
            block_bytes=_WORD_BYTES * (1 + longest),
            reuse="last",
            replay_tokens=block_tokens,
            retention="state",
        ),
    )


class FakePages(PageMemory):
    """Tokens of blocks and states as words of four bytes.

    Args:
        runner: holds them.
        before_copy: called before each copy, to raise in a test.
    """

    def __init__(self, runner: FakeRunner, before_copy: Callable[[], None] = lambda: None) -> None:
        self._runner = runner
        self._before_copy = before_copy

    def write(
        self, pages: Sequence[int], memories: Sequence[memoryview], *, is_state: bool = False
    ) -> Event:
        """Queue reading words; see ``PageMemory``."""

        def work() -> None:
            self._before_copy()
            for page, memory in zip(pages, memories, strict=True):
                words = array("I", bytes(memory))
                if is_state:
                    self._runner._slots[page] = tuple(words[1 : 1 + words[0]])
                else:
                    self._runner._blocks[page] = dict(enumerate(words))

        return self._runner._stream.submit(work)

    def read(
        self, pages: Sequence[int], memories: Sequence[memoryview], *, is_state: bool = False
    ) -> Event:
        """Queue writing words; see ``PageMemory``."""

        def work() -> None:
            self._before_copy()
            for page, memory in zip(pages, memories, strict=True):
                words = self._state(page) if is_state else self._block(page)
                data = array("I", words).tobytes()
                memory[: len(data)] = data

        return self._runner._stream.submit(work)

    def _block(self, page: int) -> list[int]:
        held = self._runner._blocks[page]
        return [held[offset] for offset in range(self._runner.block_tokens)]

    def _state(self, slot: int) -> list[int]:
        held = self._runner._slots[slot] or ()
        return [len(held), *held]
