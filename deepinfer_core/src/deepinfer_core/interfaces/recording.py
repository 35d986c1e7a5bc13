"""How is work that repeats itself noted down once and done again at less cost?

A decode step makes the same calls, step after step, on other numbers. A backend that can note calls
down and make them again without the interpreter (a list of kernel calls, a graph of a device) gives
its components a recorder. The work reads its inputs from, and leaves its results in, tensors that
stay where they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Recorder", "Recording"]


class Recording(ABC):
    """Work that was noted down; it keeps the memory in between alive."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """What is kept alive between repetitions."""

    @abstractmethod
    def repeat(self) -> None:
        """Do the work again, in the same memory.

        Raises:
            DeviceError: as the work itself would.
        """


class Recorder(ABC):
    """Notes down the calls of all components that name it, and operations of torch between them."""

    @abstractmethod
    def record(self, work: Callable[[], None]) -> Recording | None:
        """Do work and note down what it does.

        What the host decides meanwhile is decided once and for all: shapes, and every number that
        is not in a tensor.

        Args:
            work: calls components that name this recorder, and torch; nothing else.

        Returns:
            The recording; None if the work did something that cannot be repeated, such as to look
            at a number of a tensor. The work was done in either case.
        """
