"""How does a backend let somebody measure its tunings and write down which are the fastest?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["FastestTuning", "KernelTunings", "SpecChoices", "TunedKernel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedKernel:
    """One way to compute an operator.

    Attributes:
        kernel: its name in the catalogue.
        tuning: of the kernel; hashable.
    """

    kernel: str
    tuning: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FastestTuning:
    """What serves some numbers of rows of a spec.

    Attributes:
        rows: for which it was measured.
        serves: the fewest and the most rows that it is for; 0 as the most: any more.
        choice: what was the fastest.
        seconds: of one call.
        spread_s: between the quartiles of its times.
    """

    rows: int
    serves: tuple[int, int]
    choice: TunedKernel
    seconds: float
    spread_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecChoices:
    """What is chosen for a spec.

    Attributes:
        operator: what is computed.
        spec: of the operator.
        fastest: in the order of their rows; all give the same bits.
    """

    operator: str
    spec: Any
    fastest: Sequence[FastestTuning]


class KernelTunings(ABC):
    """The tunings of a backend, as launches on the device of this machine choose among them."""

    @property
    @abstractmethod
    def operators(self) -> tuple[str, ...]:
        """Names of those that have something to choose for each number of rows."""

    @abstractmethod
    def candidates(self, operator: str, spec: Any) -> Sequence[TunedKernel]:
        """Everything that may be tried for a spec, each once; some may be of no use."""

    @abstractmethod
    def picked(self, operator: str, spec: Any, rows: int) -> TunedKernel:
        """What a launch takes now."""

    @abstractmethod
    def bits(self, one: TunedKernel) -> Hashable:
        """Equal for all that give the same bits: a spec may be served by such alone."""

    @abstractmethod
    def table(
        self, choices: Sequence[SpecChoices], *, hardware: str, date: str, commit: str
    ) -> str:
        """The text of the shipped table with these choices in it.

        Args:
            choices: take the place of all that the table has for their specs.
            hardware: on which they were measured.
            date: of the measurement, ISO 8601.
            commit: of the program that measured.
        """
