"""How do the bytes of blocks and states come to a device, and from it?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from deepinfer_core.interfaces.device import Event

__all__ = ["PageMemory"]


class PageMemory(ABC):
    """The pages of an engine, as those see them who keep them elsewhere.

    Copies are work on the stream of the steps: whatever is launched behind one finds it done, and
    nothing that was launched before it sees it.
    """

    @abstractmethod
    def write(
        self, pages: Sequence[int], memories: Sequence[memoryview], *, is_state: bool = False
    ) -> Event:
        """Queue the copy of bytes into pages.

        Args:
            pages: numbers of blocks or state slots, none twice.
            memories: what each gets, from its first byte on; left alone until the event.
            is_state: the pages are state slots.
        """

    @abstractmethod
    def read(
        self, pages: Sequence[int], memories: Sequence[memoryview], *, is_state: bool = False
    ) -> Event:
        """Queue the copy of bytes from pages; see ``write``."""

    def close(self) -> None:  # noqa: B027 - there may be nothing to let go of
        """Let go of all memory that was named; nothing is under way. May be called again."""
