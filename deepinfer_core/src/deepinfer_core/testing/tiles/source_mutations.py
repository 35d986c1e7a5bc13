"""What would the mistakes of a kernel's author look like in the kernel's file?

A mistake in the source reaches every spec that the builder is asked for, as an author's does. Each
is one small change of one place inside traced code: functions under ``T.prim_func`` or ``T.macro``,
and the plain functions beside them that make expressions. The launch grid, allocations and choices
made while building stay as they are.
"""

import ast
import copy
import importlib.util
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["SOURCE_KINDS", "SourceMutant", "load_mutant", "source_mutants"]

Change = Callable[[ast.AST, bool], ast.AST | None]
"""From a node, and whether it is part of an index or a loop's header, to what it becomes."""

LOOPS = {"serial", "Parallel", "unroll", "vectorized", "Pipelined", "Serial", "Unroll"}
TILES = {"copy", "fill", "clear", "gemm", "cumsum", "reducer_update", "atomic_add", "atomic_max"}
TINY, HUGE = 1e-5, 1e30
OTHER = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
         ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMutant:
    """A kernel's file with one mistake.

    Attributes:
        kind: one of ``SOURCE_KINDS``.
        line: where, in the original file.
        before: the place as it was.
        after: the place as it is now.
        text: the whole file.
    """

    kind: str
    line: int
    before: str
    after: str
    text: str


def called(node: ast.AST) -> str:
    """The name behind ``T.``, or nothing."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return ""
    owner = node.func.value
    return node.func.attr if isinstance(owner, ast.Name) and owner.id == "T" else ""


def drop_condition(node: ast.AST, header: bool) -> ast.AST | None:
    if isinstance(node, ast.If) and isinstance(node.test, (ast.Compare, ast.BoolOp, ast.Call)):
        always = copy.deepcopy(node)
        always.test = ast.parse("True", mode="eval").body
        return ast.If(always.test, always.body, [])
    if called(node) == "if_then_else" and isinstance(node, ast.Call):
        return node.args[1]
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return node.values[0]
    return None


def items(node: ast.AST) -> list[ast.expr]:
    """The indices of an access to a buffer; none for slices and lookups while building."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        return []
    if node.value.id.isupper():
        return []
    found = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return [] if any(isinstance(item, ast.Slice) for item in found) else list(found)


def indexed(node: ast.AST, indices: list[ast.expr]) -> ast.AST:
    assert isinstance(node, ast.Subscript)
    whole = indices[0] if len(indices) == 1 else ast.Tuple(indices, ast.Load())
    return ast.Subscript(node.value, whole, node.ctx)


def shift_index(node: ast.AST, header: bool) -> ast.AST | None:
    found = items(node)
    if not found:
        return None
    return indexed(node, [*found[:-1], ast.BinOp(found[-1], ast.Add(), ast.Constant(1))])


def swap_indices(node: ast.AST, header: bool) -> ast.AST | None:
    found = items(node)
    if len(found) < 2 or ast.dump(found[0]) == ast.dump(found[-1]):
        return None
    return indexed(node, [found[-1], *found[1:-1], found[0]])


def wrong_stride(node: ast.AST, header: bool) -> ast.AST | None:
    if not isinstance(node, ast.BinOp) or not header:
        return None
    if not isinstance(node.op, (ast.Mult, ast.FloorDiv, ast.Mod)):
        return None
    return ast.BinOp(node.left, node.op, ast.BinOp(node.right, ast.Add(), ast.Constant(1)))


def drop_clamp(node: ast.AST, header: bool) -> ast.AST | None:
    if called(node) not in ("min", "max", "clamp") or not isinstance(node, ast.Call):
        return None
    first = node.args[0]
    return node.args[1] if isinstance(first, ast.Constant) else first


def drop_factor(node: ast.AST, header: bool) -> ast.AST | None:
    is_product = isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div))
    return node.left if is_product and isinstance(node, ast.BinOp) and not header else None


def drop_term(node: ast.AST, header: bool) -> ast.AST | None:
    is_sum = isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub))
    return node.left if is_sum and isinstance(node, ast.BinOp) and not header else None


def swap_operands(node: ast.AST, header: bool) -> ast.AST | None:
    if not isinstance(node, ast.BinOp) or header or not isinstance(node.op, (ast.Sub, ast.Div)):
        return None
    return ast.BinOp(node.right, node.op, node.left)


def wrong_constant(node: ast.AST, header: bool) -> ast.AST | None:
    """Another power of two; a tiny constant, which is there for zeros, is forgotten."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, float) or not node.value:
        return None
    size = abs(node.value)
    return ast.Constant(0.0 if size < TINY else node.value * (0.5 if size > HUGE else 2.0))


def short_loop(node: ast.AST, header: bool) -> ast.AST | None:
    if called(node) not in LOOPS or not isinstance(node, ast.Call):
        return None
    shorter = copy.deepcopy(node)
    shorter.args[-1] = ast.BinOp(shorter.args[-1], ast.Sub(), ast.Constant(1))
    return shorter


def wrong_comparison(node: ast.AST, header: bool) -> ast.AST | None:
    if not isinstance(node, ast.Compare) or type(node.ops[0]) not in OTHER:
        return None
    return ast.Compare(node.left, [OTHER[type(node.ops[0])]()], node.comparators)


def drop_rounding(node: ast.AST, header: bool) -> ast.AST | None:
    if called(node) != "cast" or not isinstance(node, ast.Call):
        return None
    inner = node.args[0]
    if called(inner) != "cast" or not isinstance(inner, ast.Call):
        return None
    return ast.Call(node.func, [inner.args[0], *node.args[1:]], node.keywords)


def drop_statement(node: ast.AST, header: bool) -> ast.AST | None:
    if not isinstance(node, ast.Expr):
        return None
    name = called(node.value)
    return ast.Pass() if name in TILES or name.startswith("reduce_") else None


def wrong_flag(node: ast.AST, header: bool) -> ast.AST | None:
    """A product or a reduction starts from what was there, or forgets it; an operand is turned."""
    name = called(node)
    if not isinstance(node, ast.Call) or not (name == "gemm" or name.startswith("reduce_")):
        return None
    wrong = copy.deepcopy(node)
    for keyword in wrong.keywords:
        if isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, bool):
            keyword.value = ast.Constant(not keyword.value.value)
            return wrong
    flag = "clear_accum" if name == "gemm" else "clear"
    wrong.keywords.append(ast.keyword(flag, ast.Constant(name == "gemm")))
    return wrong


SOURCE_KINDS: dict[str, Change] = {
    "dropped condition": drop_condition,
    "index off by one": shift_index,
    "swapped indices": swap_indices,
    "wrong stride": wrong_stride,
    "missing clamp": drop_clamp,
    "missing factor": drop_factor,
    "missing term": drop_term,
    "swapped operands": swap_operands,
    "wrong constant": wrong_constant,
    "short loop": short_loop,
    "wrong comparison": wrong_comparison,
    "missing rounding": drop_rounding,
    "missing statement": drop_statement,
    "wrong flag": wrong_flag,
}
"""Each kind of mistake: from a place to what it becomes, or None where it cannot occur."""


def source_mutants(path: Path, seed: int) -> Iterator[SourceMutant]:
    """All mutants of a kernel's file in a random order, kinds equally often while they last.

    Args:
        path: the file.
        seed: decides the order.
    """
    from deepinfer_core.testing.tiles.source_places import places

    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [
        (kind, place)
        for place in places(tree)
        for kind, change in SOURCE_KINDS.items()
        if change(place.node, place.header) is not None
    ]
    generator = random.Random(seed)
    generator.shuffle(found)
    while found:
        wanted = generator.choice(sorted({kind for kind, _ in found}))
        chosen = next(pair for pair in found if pair[0] == wanted)
        found.remove(chosen)
        yield make(tree, wanted, chosen[1])


def make(tree: ast.Module, kind: str, place: Any) -> SourceMutant:
    changed = SOURCE_KINDS[kind](place.node, place.header)
    assert changed is not None
    return SourceMutant(
        kind=kind,
        line=getattr(place.node, "lineno", 0),
        before=one_line(place.node),
        after=one_line(changed),
        text=place.replaced(tree, changed),
    )


def one_line(node: ast.AST) -> str:
    return " ".join(ast.unparse(ast.fix_missing_locations(node)).split())[:120]


def load_mutant(mutant: SourceMutant, package: str, folder: Path) -> ModuleType:
    """Import a changed file as a module of the original's package.

    Args:
        mutant: what to write and import.
        package: the package that the original belongs to.
        folder: where the file is written; tracing reads it again.
    """
    number = len(list(folder.glob("mutant_*.py")))
    path = folder / f"mutant_{number}.py"
    path.write_text(mutant.text, encoding="utf-8")
    name = f"{package}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module
