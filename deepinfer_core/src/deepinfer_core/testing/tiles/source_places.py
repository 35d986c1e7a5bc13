"""Which places of a kernel's file are traced into the kernel?

Code under ``T.prim_func`` and ``T.macro``, and plain functions of the file that make expressions.
"""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Place", "places"]

NOT_TRACED = ("Kernel", "alloc_", "Tensor", "StridedTensor", "dynamic", "annotate_", "use_swizzle")


@dataclass(frozen=True, slots=True)
class Place:
    """One node of traced code, and how it is reached.

    Attributes:
        node: the node.
        header: whether it is part of an index, of a loop's header or of index arithmetic.
        path: fields and positions from the module to the node.
    """

    node: ast.AST
    header: bool
    path: tuple[tuple[str, int | None], ...]

    def replaced(self, tree: ast.Module, changed: ast.AST) -> str:
        """The file's text with another node in this place."""
        whole = copy.deepcopy(tree)
        parent: ast.AST = whole
        for field, position in self.path[:-1]:
            found = getattr(parent, field)
            parent = found if position is None else found[position]
        field, position = self.path[-1]
        if position is None:
            setattr(parent, field, changed)
        else:
            getattr(parent, field)[position] = changed
        return ast.unparse(ast.fix_missing_locations(whole)) + "\n"


def places(tree: ast.Module) -> Iterator[Place]:
    """All places of traced code, in the file's order."""
    yield from inside(tree, (), traced=False, header=False)


def inside(
    node: ast.AST, path: tuple[tuple[str, int | None], ...], *, traced: bool, header: bool
) -> Iterator[Place]:
    if isinstance(node, ast.FunctionDef):
        traced = is_traced(node)
    if skipped(node):
        return
    if traced and not isinstance(node, ast.FunctionDef):
        yield Place(node, header, path)
    for field, position, child in parts(node):
        if isinstance(node, ast.FunctionDef) and field != "body":
            continue
        within = header or begins_header(node, field)
        step = (*path, (field, position))
        yield from inside(child, step, traced=traced, header=within)


def parts(node: ast.AST) -> Iterator[tuple[str, int | None, ast.AST]]:
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            yield field, None, value
        elif isinstance(value, list):
            for position, child in enumerate(value):
                if isinstance(child, ast.AST):
                    yield field, position, child


def begins_header(node: ast.AST, field: str) -> bool:
    """Whether a part of a node is an index or a bound: what is inside counts positions."""
    if isinstance(node, ast.Subscript):
        return field == "slice"
    if isinstance(node, ast.For):
        return field == "iter"
    if isinstance(node, ast.Assign):
        return field == "value" and counts_positions(node.value)
    return False


def counts_positions(value: ast.expr) -> bool:
    """Whether an assigned value is made with ``//`` or ``%``, so that it is an integer."""
    if not isinstance(value, ast.BinOp):
        return False
    return isinstance(value.op, (ast.FloorDiv, ast.Mod)) or any(
        counts_positions(side) for side in (value.left, value.right)
    )


def is_traced(node: ast.FunctionDef) -> bool:
    names = {ast.unparse(decorator) for decorator in node.decorator_list}
    if any(name.startswith(("T.prim_func", "T.macro")) for name in names):
        return True
    makes = any(isinstance(part, ast.Name) and part.id == "T" for part in ast.walk(node))
    holds = any(isinstance(part, ast.FunctionDef) for part in ast.walk(node) if part is not node)
    tunes = "tuning" in node.name or node.name == "build"
    return makes and not holds and not tunes


def skipped(node: ast.AST) -> bool:
    """Allocations, parameters and the launch grid."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return True
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr.startswith(NOT_TRACED)
