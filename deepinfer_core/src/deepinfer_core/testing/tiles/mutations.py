"""What would the mistakes of a kernel's author look like in its program?

Each kind of mistake is one small change of one node: a condition dropped, an index off by one, a
clamp, a factor or a term left out, a bound too small, operands swapped, a rounding forgotten. A
suite of cases is judged by how many of them it notices.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from deepinfer_core.testing.tiles.mutation_kinds import KINDS, name_of

__all__ = ["Mutant", "Site", "mutants", "mutate", "sites"]

DECLARATION = re.compile(r"^\w+ = T\.(Buffer|int32|int64|handle)\(")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One place of a program where one kind of mistake can be made.

    Attributes:
        kind: one of ``mutation_kinds.KINDS``.
        number: the place, counted over the program's nodes.
        before: the node as the language prints it.
    """

    kind: str
    number: int
    before: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A program with one mistake.

    Attributes:
        kind: what was done.
        before: the node as it was.
        after: the node as it is now.
        func: the changed PrimFunc.
    """

    kind: str
    before: str
    after: str
    func: Any


def sites(func: Any) -> list[Site]:
    """Every place and kind at which a program can be changed, in the program's order.

    Extents of the launch grid are no places: a grid that is too large is harmless, and one that is
    too small is a short loop.
    """
    from tilelang import tvm

    found: list[Site] = []
    grid, count = grid_nodes(func), 0

    def note(node: Any) -> None:
        nonlocal count
        for kind, change in KINDS.items() if node not in grid else ():
            if change(node) is not None:
                found.append(Site(kind=kind, number=count, before=one_line(node)))
        count += 1

    tvm.tirx.stmt_functor.ir_transform(func.body, None, note, None)
    return found


def grid_nodes(func: Any) -> set[Any]:
    """The operations in the extents of the launch grid."""
    from tilelang import tvm

    nodes: set[Any] = set()

    def note(node: Any) -> None:
        if name_of(node) == "For" and int(node.kind) == 4:
            tvm.tirx.stmt_functor.post_order_visit(
                tvm.tirx.Evaluate(node.extent),
                lambda part: nodes.add(part) if hasattr(part, "a") else None,
            )

    tvm.tirx.stmt_functor.post_order_visit(func.body, note)
    return nodes


def one_line(node: Any) -> str:
    """The node as printed, without the declarations that the printer puts before it."""
    lines = [line for line in str(node).splitlines() if not DECLARATION.match(line)]
    return " ".join(" ".join(lines).split())[:160]


def mutate(func: Any, site: Site) -> Mutant:
    """Make one mistake."""
    from tilelang import tvm

    count, after = 0, ""

    def change(node: Any) -> Any:
        nonlocal count, after
        count += 1
        if count - 1 != site.number:
            return None
        changed = KINDS[site.kind](node)
        after = one_line(changed)
        return changed

    body = tvm.tirx.stmt_functor.ir_transform(func.body, None, change, None)
    return Mutant(kind=site.kind, before=site.before, after=after, func=func.with_body(body))


def mutants(func: Any, seed: int) -> Iterator[Mutant]:
    """All mutants of a program in a random order, kinds taken equally often while they last.

    Args:
        func: a PrimFunc, as for the interpreter.
        seed: decides everything.
    """
    places = sites(func)
    generator = random.Random(seed)
    generator.shuffle(places)
    while places:
        kind = generator.choice(sorted({place.kind for place in places}))
        site = next(place for place in places if place.kind == kind)
        places.remove(site)
        yield mutate(func, site)
