"""What does the translation of a tile program know about each name in it?

Translation happens once for each program: variables, buffers and allocations get numbers, lane
axes get positions, and the facts that decide how an index is evaluated are collected here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from deepinfer_core.testing.tiles.affine import Affine, decompose
from deepinfer_core.testing.tiles.run import Run

__all__ = ["Allocation", "BufferFacts", "Evaluate", "Perform", "Scope", "children", "walk"]

Evaluate = Callable[[Run], Any]
"""A translated expression."""
Perform = Callable[[Run], None]
"""A translated statement."""

LANE_SCOPES = ("local", "local.var")
CORE_SCOPES = ("shared", "shared.dyn")
"""Memory that each vector core of an Ascend block has for itself."""


@dataclass(slots=True)
class Allocation:
    """Memory behind one or several buffers."""

    slot: int
    name: str
    scope: str
    granule_bytes: int
    per_lane: bool
    per_core: bool = False
    registers: bool = False
    buffers: list[tuple[int, Any]] = field(default_factory=list)


@dataclass(slots=True)
class BufferFacts:
    """One buffer: where it lives and which allocation it looks at."""

    slot: int
    node: Any
    allocation: Allocation


@dataclass
class Scope:
    """Names of one program while it is translated."""

    threads: tuple[int, ...] = ()
    bound_threads: dict[Any, int] = field(default_factory=dict)
    variables: dict[Any, int] = field(default_factory=dict)
    affine: dict[Any, Affine | None] = field(default_factory=dict)
    later: dict[Any, Any] = field(default_factory=dict)
    buffers: dict[Any, BufferFacts] = field(default_factory=dict)
    allocations: dict[Any, Allocation] = field(default_factory=dict)
    widths: dict[Any, int] = field(default_factory=dict)
    arrivals: dict[Any, list[int]] = field(default_factory=dict)
    live: list[int] = field(default_factory=list)
    cores: int = 1
    in_region: bool = False
    base_axes: int = 0
    next_axis: int = 0
    axes: int = 0
    lane_stores: set[int] = field(default_factory=set)
    kinds: dict[Any, str] = field(default_factory=dict)

    def define(self, variable: Any, facts: Affine | str | None = "uniform") -> int:
        """Give a variable its number, and say how it varies over lanes."""
        slot = self.variables.setdefault(variable, len(self.variables))
        known = Affine(rest=[(1, variable)]) if isinstance(facts, str) else facts
        self.affine[variable] = known
        return slot

    def affine_of(self, variable: Any) -> Affine | None:
        """What a variable is made of; None when it varies over lanes in another way."""
        if variable in self.later:
            return decompose(self.later[variable], self)
        return self.affine.get(variable, Affine(rest=[(1, variable)]))

    def varies(self, node: Any) -> bool:
        """Whether a variable that differs between lanes occurs in an expression."""
        for part in walk(node):
            if type(part).__name__ == "Var":
                known = self.affine_of(part)
                if known is None or known.steps:
                    return True
        return False

    def known(self, node: Any) -> bool:
        """Whether every variable of an expression is defined by now."""
        return all(
            part in self.variables or part in self.later
            for part in walk(node)
            if type(part).__name__ == "Var" and str(part.dtype) != "handle"
        )

    def buffer(self, node: Any) -> BufferFacts:
        """Facts of a buffer, made on first sight from the allocation that it looks at."""
        facts = self.buffers.get(node)
        if facts is None:
            allocation = self.allocations[node.data]
            facts = BufferFacts(len(self.buffers), node, allocation)
            self.buffers[node] = facts
            allocation.buffers.append((facts.slot, node))
        return facts

    def allocate(self, node: Any, granule_bytes: int) -> Allocation:
        """Facts of a new allocation."""
        scope = str(node.scope())
        slot = len(self.allocations)
        per_lane = scope in LANE_SCOPES
        per_core = self.cores > 1 and scope in CORE_SCOPES
        allocation = Allocation(slot, str(node.name), scope, granule_bytes, per_lane, per_core)
        self.allocations[node.data] = allocation
        return allocation


def children(node: Any) -> Iterator[Any]:
    """The expressions directly inside an expression."""
    kind = type(node).__name__
    if kind == "Call":
        yield from (part for part in node.args if hasattr(part, "dtype"))
    elif kind == "BufferLoad":
        yield from node.indices
    elif kind in ("Cast", "Broadcast"):
        yield node.value
    elif kind in ("Select",):
        yield from (node.condition, node.true_value, node.false_value)
    elif kind == "Ramp":
        yield from (node.base, node.stride)
    elif kind == "Let":
        yield from (node.value, node.body)
    elif kind == "Shuffle":
        yield from (*node.vectors, *node.indices)
    else:
        yield from (getattr(node, name) for name in ("a", "b") if hasattr(node, name))


def walk(node: Any) -> Iterator[Any]:
    """An expression and everything inside it."""
    yield node
    for part in children(node):
        yield from walk(part)
