"""Which mistakes can be made at one node of a tile program?

Each kind is a function from a node to the node that it becomes, or to None where the mistake cannot
be made.
"""

from collections.abc import Callable
from typing import Any

__all__ = ["KINDS", "name_of"]

Change = Callable[[Any], Any]

TINY, HUGE = 1e-5, 1e30


def name_of(node: Any) -> str:
    return type(node).__name__


def call_of(node: Any) -> str:
    return str(node.op.name) if name_of(node) == "Call" else ""


def drop_condition(node: Any) -> Any:
    """A guard is forgotten; what it guarded always happens."""
    if name_of(node) == "IfThenElse" and not is_warp_group(node):
        return node.then_case
    if call_of(node) == "tirx.if_then_else":
        return node.args[1]
    if name_of(node) == "Select":
        return node.true_value
    return node.a if name_of(node) == "And" else None


def is_warp_group(node: Any) -> bool:
    from deepinfer_core.testing.tiles.roles import is_role

    return is_role(node)


def shift_index(node: Any) -> Any:
    """The last index of an access is off by one."""
    from tilelang import tvm

    if name_of(node) not in ("BufferLoad", "BufferStore"):
        return None
    last = node.indices[-1]
    if name_of(last) == "Ramp" or str(node.buffer.scope()) in ("local.var", "shared.barrier"):
        return None
    moved = [*list(node.indices)[:-1], last + tvm.tirx.const(1, last.dtype)]
    if name_of(node) == "BufferLoad":
        return tvm.tirx.BufferLoad(node.buffer, moved)
    return tvm.tirx.BufferStore(node.buffer, node.value, moved)


def swap_indices(node: Any) -> Any:
    """Row and column are exchanged."""
    from tilelang import tvm

    if name_of(node) != "BufferLoad" or len(node.indices) < 2:
        return None
    first, *middle, last = list(node.indices)
    if tvm.ir.structural_equal(first, last):
        return None
    return tvm.tirx.BufferLoad(node.buffer, [last, *middle, first])


def wrong_stride(node: Any) -> Any:
    """An index takes steps of a wrong width."""
    from tilelang import tvm

    if name_of(node) not in ("Mul", "FloorDiv", "FloorMod") or name_of(node.b) != "IntImm":
        return None
    if not str(node.dtype).startswith("int") or int(node.b.value) in (0, 1):
        return None
    return type(node)(node.a, tvm.tirx.const(int(node.b.value) + 1, node.dtype))


def drop_clamp(node: Any) -> Any:
    """A limit is forgotten."""
    if name_of(node) in ("Min", "Max"):
        return node.a if name_of(node.a) not in ("IntImm", "FloatImm") else node.b
    return node.args[0] if call_of(node) == "tl.clamp" else None


def drop_factor(node: Any) -> Any:
    """A scale is forgotten."""
    return node.a if name_of(node) in ("Mul", "Div") and is_float(node) else None


def double_constant(node: Any) -> Any:
    """A constant of another power of two; a tiny one, which is there for zeros, is forgotten."""
    from tilelang import tvm

    if name_of(node) != "FloatImm" or float(node.value) in (0.0, float("inf"), float("-inf")):
        return None
    size = abs(float(node.value))
    value = 0.0 if size < TINY else float(node.value) * (0.5 if size > HUGE else 2.0)
    return tvm.tirx.const(value, node.dtype)


def drop_term(node: Any) -> Any:
    """A summand is forgotten."""
    return node.a if name_of(node) in ("Add", "Sub") and is_float(node) else None


def short_loop(node: Any) -> Any:
    """A loop ends one turn early."""
    from tilelang import tvm

    if name_of(node) != "For":
        return None
    if name_of(node.extent) == "IntImm" and int(node.extent.value) < 2:
        return None
    less = node.extent - tvm.tirx.const(1, node.extent.dtype)
    return tvm.tirx.For(
        node.loop_var, node.min, less, node.kind, node.body, node.thread_binding,
        node.annotations, node.step,
    )  # fmt: skip


def swap_operands(node: Any) -> Any:
    """The wrong way round."""
    if name_of(node) in ("Sub", "Div") and is_float(node):
        return type(node)(node.b, node.a)
    return None


def wrong_comparison(node: Any) -> Any:
    """A limit of an integer is meant inclusively, or not; between floats that is no mistake."""
    from tilelang import tvm

    if not hasattr(node, "a") or is_float(node.a):
        return None
    other = {"LT": "LE", "LE": "LT", "GT": "GE", "GE": "GT", "EQ": "NE", "NE": "EQ"}
    kind = other.get(name_of(node))
    return getattr(tvm.tirx, kind)(node.a, node.b) if kind else None


def drop_rounding(node: Any) -> Any:
    """A value is kept wider than the format that it must pass through."""
    if name_of(node) != "Cast" or name_of(node.value) != "Cast" or not is_float(node):
        return None
    inner = node.value.value
    return inner if str(inner.dtype) == str(node.dtype) else None


def drop_statement(node: Any) -> Any:
    """A tile operation is forgotten."""
    from tilelang import tvm

    if name_of(node) != "Evaluate" or not call_of(node.value).startswith("tl.tileop."):
        return None
    return tvm.tirx.Evaluate(tvm.tirx.const(0, "int32"))


def wrong_flag(node: Any) -> Any:
    """A product starts from what was there, or forgets it; a reduction likewise."""
    from tilelang import tvm

    place = {"tl.tileop.gemm": 9, "tl.tileop.reduce": 4}.get(call_of(node))
    if place is None or name_of(node.args[place]) != "IntImm":
        return None
    arguments = list(node.args)
    arguments[place] = tvm.tirx.const(not int(arguments[place].value), "bool")
    return tvm.tirx.Call(node.dtype, node.op, arguments, node.annotations)


def is_float(node: Any) -> bool:
    return "float" in str(node.dtype)


KINDS: dict[str, Change] = {
    "dropped condition": drop_condition,
    "index off by one": shift_index,
    "swapped indices": swap_indices,
    "wrong stride": wrong_stride,
    "missing clamp": drop_clamp,
    "missing factor": drop_factor,
    "wrong constant": double_constant,
    "missing term": drop_term,
    "short loop": short_loop,
    "swapped operands": swap_operands,
    "wrong comparison": wrong_comparison,
    "missing rounding": drop_rounding,
    "missing statement": drop_statement,
    "wrong flag": wrong_flag,
}
"""Each kind of mistake: from a node to the node that it becomes, or None where it cannot occur."""
