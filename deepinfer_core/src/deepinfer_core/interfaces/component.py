"""What does every component of every kind have in common?

A component is built once per engine from a ``ComponentSpec`` and then called directly. It declares
what it promises; the contract suites in ``deepinfer_core.testing.contracts`` test each promise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from deepinfer_core.interfaces.recording import Recorder

__all__ = ["Component", "Plan", "Promise", "Properties"]

Promise = Literal["always", "on_request", "never"]
"""How far a property holds: in every call, when the configuration is strict about it, or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Properties:
    """What a component promises about all of its operators.

    Attributes:
        batch_invariant: a row's result has the same bits in every batch, at every row index and
            under every split of a prompt into chunks.
        deterministic: the same call on the same inputs gives the same bits.
        graph_safe: no host synchronisation and no data-dependent shape in ``run``, and no memory
            but the caller's and what torch hands out, which a graph keeps.
    """

    batch_invariant: Promise
    deterministic: Promise
    graph_safe: Promise


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a component decided on the CPU before it runs; backends extend it with their own fields.

    A plan depends on its arguments only, never on device memory, and serves every layer of a step
    and every step with at most ``max_rows`` rows.

    Attributes:
        max_rows: largest number of rows that ``run`` may be given with this plan.
        workspace_bytes: scratch memory the caller must provide; 0 if none.
        batch_invariant: whether this very plan keeps the promise.
    """

    max_rows: int
    workspace_bytes: int = 0
    batch_invariant: bool = True


class Component(ABC):
    """Base of all component interfaces."""

    @property
    @abstractmethod
    def properties(self) -> Properties:
        """The promises of this component."""

    @property
    def kernels_built(self) -> int | None:
        """Kernels that were compiled or loaded so far because a call needed them.

        None for a component that does no such thing; one that does is called with steps of all
        sizes before the engine takes requests.
        """
        return None

    @property
    def recorder(self) -> Recorder | None:
        """What notes down calls of this component; None if nothing does.

        Calls may be noted together with those of other components that name the same object, so
        every operator of the component must be a call that it sees. A component of a device that
        notes down all launches (``Device.recorder``) names none; it promises ``graph_safe``.
        """
        return None
