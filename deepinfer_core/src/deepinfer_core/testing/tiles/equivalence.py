"""When is a changed program still the same program?

By one rule: the compiler's own simplifier, told how many threads and blocks there are, makes the
same text of both. That finds guards that are provably true and indices that are provably equal.
What merely makes no difference in the cases at hand is not equivalent.

Conditions are put into one form, unless they are alternatives of comparisons between floats: the
simplifier can prove nothing about those, and takes minutes.
"""

from typing import Any

__all__ = ["is_equivalent"]


def is_equivalent(func: Any, other: Any) -> bool:
    """Whether the simplifier cannot tell two PrimFuncs apart."""
    from tilelang import tvm

    is_formed = not (has_float_alternatives(func) or has_float_alternatives(other))
    first, second = (simplified(one, is_formed=is_formed) for one in (func, other))
    return bool(tvm.ir.structural_equal(first, second, map_free_vars=True))


def has_float_alternatives(func: Any) -> bool:
    """Whether an ``or`` joins comparisons between floats."""
    from tilelang import tvm

    found = []

    def look(node: Any) -> None:
        if hasattr(node, "a") and "float" in str(node.a.dtype):
            found.append(str(node.dtype) == "bool")

    def look_at_alternatives(node: Any) -> None:
        if type(node).__name__ == "Or":
            tvm.tirx.stmt_functor.post_order_visit(tvm.tirx.Evaluate(node), look)

    tvm.tirx.stmt_functor.post_order_visit(func.body, look_at_alternatives)
    return any(found)


def simplified(func: Any, *, is_formed: bool = True) -> Any:
    """The program as the simplifier leaves it, with thread indices as loops of known extent.

    Args:
        func: the program.
        is_formed: whether conditions are made conjunctions of alternatives.
    """
    from tilelang import tvm

    switches = SWITCHES | {"convert_boolean_to_and_of_ors": is_formed}
    body = inlined(tvm, as_loops(tvm, func.body))
    simplify = tvm.tirx.transform.Simplify()
    for _ in range(2):
        module = tvm.IRModule({"main": func.with_body(body)})
        with tvm.transform.PassContext(config={"tirx.Simplify": switches}):
            body = resolved(tvm, simplify(module)["main"].body)
    return simplify(tvm.IRModule({"main": func.with_body(body)}))["main"]


def resolved(tvm: Any, body: Any) -> Any:
    """``a - b < 0`` as ``a < b``, which the simplifier can compare with a loop's bound."""

    def turn(node: Any) -> Any:
        left, right = node.a, node.b
        if type(right).__name__ != "IntImm" or int(right.value) != 0:
            return None
        return type(node)(left.a, left.b) if type(left).__name__ == "Sub" else None

    return tvm.tirx.stmt_functor.ir_transform(body, None, turn, ["tirx.LT", "tirx.LE"])


THREAD_BINDING = 4
SWITCHES = {
    "transitively_prove_inequalities": True,
    "apply_constraints_to_boolean_branches": True,
}


def as_loops(tvm: Any, body: Any) -> Any:
    """Block indices as serial loops, and thread indices as loops around the program."""
    threads, bound = [1, 1, 1], []

    def look(node: Any) -> None:
        if type(node).__name__ == "SBlock" and "tl.launch_threads" in node.annotations:
            threads[:] = [int(count) for count in node.annotations["tl.launch_threads"]]

    def unbind(node: Any) -> Any:
        value = node.value
        if type(value).__name__ != "Call" or str(value.op.name) != "tl.launch_thread_idx":
            return None
        bound.append((node.var, int(value.args[0])))
        return tvm.tirx.Evaluate(tvm.tirx.const(0, "int32"))

    def serial(node: Any) -> Any:
        if int(node.kind) != THREAD_BINDING:
            return None
        return counted(tvm, node.loop_var, node.extent, node.body)

    tvm.tirx.stmt_functor.post_order_visit(body, look)
    body = tvm.tirx.stmt_functor.ir_transform(body, None, serial, ["tirx.For"])
    body = tvm.tirx.stmt_functor.ir_transform(body, None, unbind, ["tirx.Bind"])
    for variable, axis in bound:
        body = counted(tvm, variable, tvm.tirx.const(threads[axis], "int32"), body)
    return body


def counted(tvm: Any, variable: Any, extent: Any, body: Any) -> Any:
    """A serial loop whose body is told that its variable is less than the extent."""
    inside = tvm.tirx.IfThenElse(tvm.tirx.LT(variable, extent), body, None)
    return tvm.tirx.For(variable, tvm.tirx.const(0, extent.dtype), extent, 0, inside)


def inlined(tvm: Any, body: Any) -> Any:
    """Replace names of plain index arithmetic by what they stand for."""
    known: dict[Any, Any] = {}

    def forget(node: Any) -> Any:
        value = node.value
        if not str(value.dtype).startswith("int") or not pure(tvm, value):
            return None
        known[node.var] = tvm.tirx.stmt_functor.substitute(value, known)
        return tvm.tirx.Evaluate(tvm.tirx.const(0, "int32"))

    body = tvm.tirx.stmt_functor.ir_transform(body, None, forget, ["tirx.Bind"])
    return tvm.tirx.stmt_functor.substitute(body, known)


def pure(tvm: Any, value: Any) -> bool:
    """Whether a value is made of variables and arithmetic alone."""
    impure = []

    def look(node: Any) -> None:
        if type(node).__name__ in ("BufferLoad", "Call"):
            impure.append(node)

    tvm.tirx.stmt_functor.post_order_visit(tvm.tirx.Evaluate(value), look)
    return not impure
