"""How do two components work for a model in the place of one?

Each gets plans and weights of its own making; whoever derives from ``PairedComponent`` says what
becomes of a call.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deepinfer_core.interfaces.component import Component, Plan

__all__ = ["PairedComponent", "PairedForms", "PairedPlan", "other_side", "specified_side"]


@dataclass(frozen=True, kw_only=True)
class PairedPlan(Plan):
    """The plans of both.

    Attributes:
        specified: of the component that the model computes with.
        other: of the one beside it.
    """

    specified: Plan
    other: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedForms:
    """What both made of a weight.

    Attributes:
        specified: as in ``PairedPlan``.
        other: likewise.
    """

    specified: Any
    other: Any


def specified_side(value: Any) -> Any:
    """What the specified component gets of an argument."""
    return value.specified if isinstance(value, PairedPlan | PairedForms) else value


def other_side(value: Any) -> Any:
    """What the other one gets of it."""
    return value.other if isinstance(value, PairedPlan | PairedForms) else value


class PairedComponent(ABC):
    """Stands where the model calls a component of any kind.

    Args:
        specified: what the model computes with.
        other: works beside it.
    """

    def __init__(self, specified: Component, other: Component) -> None:
        self._specified, self._other = specified, other
        self.properties = specified.properties
        # The model rounds rows where the other one wants them rounded, for both.
        self.wants_rounded_rows = getattr(other, "wants_rounded_rows", False)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A method of both."""
        specified, other = getattr(self._specified, name), getattr(self._other, name)

        def plan(spec: object, max_rows: int) -> Plan:
            plans = specified(spec, max_rows), other(spec, max_rows)
            return PairedPlan(max_rows=max_rows, specified=plans[0], other=plans[1])

        def prepare(weight: Any) -> PairedForms:
            return PairedForms(specified=specified(weight), other=other(weight))

        def call(*values: Any, **named: Any) -> Any:
            given = inspect.signature(specified).bind(*values, **named).arguments
            return self.call(name, specified, other, given)

        if name.startswith("plan"):
            return plan
        return prepare if name.startswith("prepare") else call

    @abstractmethod
    def call(
        self,
        name: str,
        specified: Callable[..., Any],
        other: Callable[..., Any],
        given: Mapping[str, Any],
    ) -> Any:
        """What becomes of a call that neither plans nor prepares.

        Args:
            name: of the method.
            specified: the method of the one component.
            other: of the other.
            given: arguments by name, with plans and forms of both.

        Returns:
            What the model gets.
        """
