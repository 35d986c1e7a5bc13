"""How is work that repeats itself noted down once and done again at less cost?

A decode step makes the same calls, step after step, on other numbers. A backend that can note calls
down and make them again without the interpreter has a recorder. That of a device sees all launches
on it, whoever makes them (a graph of a GPU); that of components sees their calls only (a list of
kernel calls). Either way the work reads its inputs from, and leaves its results in, tensors that
stay where they are.

The engine repeats decode steps from either: ``engine.recorded_steps``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MOST_RECORDED_BYTES", "Recorder", "Recording"]

MOST_RECORDED_BYTES = 64 << 20
"""What recorded steps may keep alive together where they do not share their memory: those of some
thirty sizes of a step of the shipped checkpoint. As much again for each draft that a step verifies
of a sequence, which adds as many rows."""


class Recording(ABC):
    """Work that was noted down; it keeps the memory in between alive."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """What this recording takes: kept alive between repetitions, or added to shared memory."""

    @abstractmethod
    def repeat(self) -> None:
        """Do the work again, in the same memory; on a device: launch it on the current stream.

        Raises:
            DeviceError: as the work itself would.
        """


class Recorder(ABC):
    """Notes down calls, and operations of torch between them."""

    @abstractmethod
    def record(self, work: Callable[[], None]) -> Recording | None:
        """Do work and note down what it does.

        What the host decides meanwhile is decided once and for all: shapes, and every number that
        is not in a tensor. What the work reads and writes must outlive the recording. What it
        allocates belongs to the recording, and its contents last until this or another recording
        of the recorder repeats.

        Args:
            work: makes calls that this recorder sees, and calls torch; nothing else. It was done
                before, so that everything it needs is compiled.

        Returns:
            The recording; None if the work did something that cannot be repeated, such as to look
            at a number of a tensor. The work was done once in either case.

        Raises:
            DeviceError: the work did such a thing on a device that cannot go on behind it.
        """
