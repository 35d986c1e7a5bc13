"""How is a whole tile program translated, bound to tensors, and run?

Translation walks the program once; a run binds tensors by the names of the parameters, solves the
symbolic extents from their shapes, and performs the closures. Results are in the tensors.
"""

import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from time import process_time
from typing import Any

import numpy as np

from deepinfer_core.testing.tiles import bindings
from deepinfer_core.testing.tiles.blocks import note_block
from deepinfer_core.testing.tiles.cores import VECTOR_CORES, is_split
from deepinfer_core.testing.tiles.expressions import translate
from deepinfer_core.testing.tiles.faults import ArgumentMismatch
from deepinfer_core.testing.tiles.formats import numpy_dtype
from deepinfer_core.testing.tiles.memory import Memory, View
from deepinfer_core.testing.tiles.run import Run
from deepinfer_core.testing.tiles.scope import Allocation, Scope, walk
from deepinfer_core.testing.tiles.statements import translate_statement

__all__ = ["Program", "interpret"]


class Program:
    """A translated tile program, ready to run any number of times.

    Args:
        func: a PrimFunc as the tile language's frontend makes it, before any lowering.

    Raises:
        ArgumentMismatch: ``func`` is not a PrimFunc.
        UnknownTileOperation: it uses something that the interpreter does not know.
    """

    def __init__(self, func: Any) -> None:
        if type(func).__name__ != "PrimFunc":
            raise ArgumentMismatch(
                f"cannot interpret a {type(func).__name__} as a tile program",
                hint="pass the PrimFunc that the builder returns; a @tilelang.jit object makes it "
                "with get_tir(...)",
            )
        self.func = func
        self.scope = Scope()
        self.parameters: list[tuple[str, Any, Allocation]] = []
        look_ahead(self.scope, func.body)
        for variable in func.params:
            buffer = func.buffer_map[variable]
            self.declare(buffer)
            allocation = self.scope.allocate(buffer, 1)
            self.scope.buffer(buffer)
            self.parameters.append((str(buffer.name), buffer, allocation))
        self.body = translate_statement(self.scope, func.body)

    def declare(self, buffer: Any) -> None:
        """Define the symbolic extents and strides of a parameter."""
        for extent in (*buffer.shape, *buffer.strides):
            if type(extent).__name__ == "Var":
                self.scope.define(extent)

    def run(
        self,
        arguments: Mapping[str, Any],
        *,
        limit_s: float | None = None,
        refuse_doubled_stores: bool = False,
    ) -> None:
        """Run on tensors, bound by parameter name; outputs are written in place.

        Args:
            arguments: one tensor for each parameter.
            limit_s: give up after this time of the processor; for programs that may be broken.
            refuse_doubled_stores: no two lanes of a statement may store into one cell of shared or
                global memory, not even the same value. A statement outside every loop is one of
                all threads, if the program asks for the thread's index.

        Raises:
            ArgumentMismatch: an argument is missing, unknown, or does not fit.
            TileFault: the program did something that it must not do.
        """
        scope = self.scope
        run = Run(
            len(scope.variables),
            len(scope.buffers),
            len(scope.allocations),
            max(scope.axes, 3),
        )
        run.extents[: len(scope.threads)] = scope.threads
        if limit_s is not None:
            run.deadline_s = process_time() + limit_s
        if refuse_doubled_stores:
            run.threads = self.asked_threads
        tensors = bindings.match(self.parameters, arguments)
        for (name, buffer, allocation), tensor in zip(self.parameters, tensors, strict=True):
            bindings.solve(scope, run, name, buffer, tensor)
            memory = Memory.of_caller(tensor.raw, name)
            for slot, node in allocation.buffers:
                run.views[slot] = self.view(run, memory, node, tensor, main=node is buffer)
        with np.errstate(all="ignore"):
            self.body(run)
        for tensor in tensors:
            tensor.give_back()

    @cached_property
    def asked_threads(self) -> int:
        """How many threads perform what has no lanes: one, if nothing asks which thread it is."""
        from tilelang import tvm

        asked = set()

        def look(node: Any) -> None:
            if type(node).__name__ == "Var" and node in self.scope.bound_threads:
                asked.add(node)

        tvm.tirx.stmt_functor.post_order_visit(self.func.body, look)
        return math.prod(self.scope.bound_threads[variable] for variable in asked)

    def view(
        self, run: Run, memory: Memory, node: Any, tensor: bindings.Bound, *, main: bool
    ) -> View:
        """A view of a parameter: as the caller's tensor lies, or as an alias declares it."""
        dtype = numpy_dtype(str(node.dtype))
        if main:
            return View.over(memory, dtype, tensor.shape, tensor.strides, tensor.offset)
        shape = [int(translate(self.scope, extent)(run)) for extent in node.shape]
        strides = [int(translate(self.scope, stride)(run)) for stride in node.strides]
        start = tensor.offset * tensor.dtype.itemsize // dtype.itemsize
        return View.over(memory, dtype, shape, strides or None, start)


def statements(node: Any) -> Iterator[Any]:
    """A statement and every statement inside it."""
    yield node
    kind = type(node).__name__
    if kind == "SeqStmt":
        parts = list(node.seq)
    elif kind == "IfThenElse":
        parts = [node.then_case] + ([node.else_case] if node.else_case is not None else [])
    elif kind == "SBlockRealize":
        parts = [node.block]
    else:
        parts = [node.body] if hasattr(node, "body") else []
    for part in parts:
        yield from statements(part)


def look_ahead(scope: Scope, body: Any) -> None:
    """Learn what statements need to know early: threads, and each allocation's narrowest view."""
    for statement in statements(body):
        for name in ("value", "condition", "min", "extent"):
            node = getattr(statement, name, None)
            for part in walk(node) if hasattr(node, "dtype") else ():
                if type(part).__name__ == "BufferLoad":
                    note(scope, part.buffer)
        if type(statement).__name__ == "BufferStore":
            note(scope, statement.buffer)
        if type(statement).__name__ == "SBlock":
            note_block(scope, statement)
            for buffer in statement.alloc_buffers:
                note(scope, buffer)
        note_cores(scope, statement)


def note_cores(scope: Scope, statement: Any) -> None:
    """Learn whether a block has two vector cores, and how many thread axes its regions use."""
    if type(statement).__name__ == "Evaluate" and is_split(statement.value):
        scope.cores = VECTOR_CORES
    if type(statement).__name__ == "AttrStmt" and str(statement.attr_key) == "thread_extent":
        used = 1 + "xyz".index(str(statement.node.thread_tag)[-1])
        if int(statement.value) > 1:
            scope.base_axes = scope.next_axis = max(used, scope.base_axes)
            scope.axes = max(scope.axes, used)


def note(scope: Scope, buffer: Any) -> None:
    width = numpy_dtype(str(buffer.dtype)).itemsize
    scope.widths[buffer.data] = min(scope.widths.get(buffer.data, width), width)


def interpret(func: Any, arguments: Mapping[str, Any]) -> None:
    """Run a tile program once on CPU tensors.

    Args:
        func: the PrimFunc, straight from its builder.
        arguments: a torch tensor or numpy array for each parameter, by the parameter's name.
            Outputs are written in place.

    Raises:
        ArgumentMismatch: ``func`` is not a PrimFunc, or an argument does not fit its parameter.
        UnknownTileOperation: the program uses something the interpreter does not know.
        TileFault: the program read or wrote where it must not.
    """
    Program(func).run(arguments)
