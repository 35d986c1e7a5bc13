"""Which index expressions are a base plus a constant step for each lane axis?

Most indices of a kernel are: ``bx * 64 + i``, ``i * 32 + j``, ``tx * 4 + k``. Such an access is a
strided window of the buffer and needs no index arrays, which is where an interpreter's time goes.
"""

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Affine", "ThreadOrigin", "decompose"]


@dataclass(slots=True)
class Affine:
    """``constant + sum(step * axis) + sum(factor * node)``; nodes hold no lane variable."""

    constant: int = 0
    steps: dict[int, int] = field(default_factory=dict)
    rest: list[tuple[int, Any]] = field(default_factory=list)

    def scaled(self, factor: int) -> "Affine":
        """The expression times an integer."""
        steps = {axis: step * factor for axis, step in self.steps.items()}
        rest = [(weight * factor, node) for weight, node in self.rest]
        return Affine(self.constant * factor, steps, rest)

    def plus(self, other: "Affine") -> "Affine":
        """The sum of two expressions."""
        steps = dict(self.steps)
        for axis, step in other.steps.items():
            steps[axis] = steps.get(axis, 0) + step
        return Affine(self.constant + other.constant, steps, self.rest + other.rest)


@dataclass(frozen=True, slots=True)
class ThreadOrigin:
    """The first thread index that takes part: 0, or the start of a warp group."""

    axis: int
    dtype: str = "int32"


def decompose(node: Any, names: Any) -> Affine | None:
    """Split an integer expression, or None if a lane variable enters in another way.

    Args:
        node: the expression.
        names: the scope; ``affine_of(variable)`` gives what a variable is made of (None: it varies
            in another way), ``varies(expression)`` says whether a lane variable occurs in it.
    """
    kind = type(node).__name__
    if kind == "IntImm":
        return Affine(int(node.value))
    if kind == "Var":
        known: Affine | None = names.affine_of(node)
        return known
    if kind in ("Add", "Sub"):
        return combine(kind, decompose(node.a, names), decompose(node.b, names))
    if kind == "Mul":
        return multiply(node, names)
    if kind == "Cast" and str(node.dtype) in ("int32", "int64") and is_signed(node.value):
        return decompose(node.value, names)
    return None if names.varies(node) else Affine(rest=[(1, node)])


def is_signed(node: Any) -> bool:
    return str(node.dtype) in ("int32", "int64")


def combine(kind: str, left: Affine | None, right: Affine | None) -> Affine | None:
    if left is None or right is None:
        return None
    return left.plus(right if kind == "Add" else right.scaled(-1))


def multiply(node: Any, names: Any) -> Affine | None:
    for factor, other in ((node.a, node.b), (node.b, node.a)):
        if type(factor).__name__ == "IntImm":
            parts = decompose(other, names)
            return None if parts is None else parts.scaled(int(factor.value))
    return None if names.varies(node) else Affine(rest=[(1, node)])
