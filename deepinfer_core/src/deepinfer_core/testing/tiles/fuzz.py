"""Do the interpreter and the device agree on kernels that nobody thought of?

A seed decides a small kernel: a chain of steps on tiles, each with its text in the tile language
and its meaning in plain numpy. Numbers are small integers and every step keeps them small, so sums
and products are exact in any order, and results are compared bit for bit: interpreter against numpy
anywhere, a compiled kernel against both where there is a device.
"""

import importlib.util
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["RandomKernel", "random_kernel"]

Array = NDArray[Any]
State = dict[str, Array]

TILE, WIDTH = 16, 64
LIMIT = 15.0
"""Magnitude of every number between steps: products of two and sums of 64 of them are exact."""

HEAD = """
import tilelang.language as T


def build():
    rows = T.dynamic("rows")

    @T.prim_func
    def fuzzed_kernel(
        x_TD: T.Tensor((rows, {width}), "float32"),
        index_T: T.Tensor((rows,), "int64"),
        out_TD: T.Tensor((rows, {width}), "float32"),
        sum_T: T.Tensor((rows,), "float32"),
        count_B: T.Tensor((32,), "int32"),
    ):
        with T.Kernel(T.ceildiv(rows, {tile}), threads=128) as block:
            a = T.alloc_fragment(({tile}, {width}), "float32")
            b = T.alloc_fragment(({tile}, {width}), "float32")
            s = T.alloc_fragment(({tile},), "float32")
            held = T.alloc_shared(({tile}, {width}), "float32")
            half = T.alloc_shared(({tile}, {width}), "bfloat16")
            square = T.alloc_shared(({width}, {width}), "bfloat16")
            T.copy(x_TD[block * {tile}, 0], a)
            T.copy(x_TD[block * {tile}, 0], b)
            T.clear(s)
"""
TAIL = """
            T.reduce_sum(a, s, dim=1)
            for i, j in T.Parallel({tile}, {width}):
                if block * {tile} + i < rows:
                    out_TD[block * {tile} + i, j] = a[i, j]
            for i in T.Parallel({tile}):
                if block * {tile} + i < rows:
                    sum_T[block * {tile} + i] = s[i]

    return fuzzed_kernel
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step: lines of the kernel, and what they do to the whole arrays."""

    lines: tuple[str, ...]
    apply: Callable[[State], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomKernel:
    """A kernel made from a seed.

    Attributes:
        seed: what it was made from.
        text: a module with ``build()``.
        steps: its steps, for the meaning in numpy.
    """

    seed: int
    text: str
    steps: tuple[Step, ...]

    def build(self, folder: Path) -> Any:
        """The PrimFunc; tracing reads the text from a file in ``folder``."""
        path = folder / f"fuzzed_{self.seed}.py"
        path.write_text(self.text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.build()

    def arguments(self, rows: int) -> dict[str, Array]:
        """Arguments by name; outputs poisoned, counts zero."""
        generator = np.random.default_rng(self.seed)
        x = generator.integers(-15, 16, (rows, WIDTH)).astype(np.float32)
        return {
            "x_TD": x,
            "index_T": generator.integers(-1, max(rows, 1), rows).astype(np.int64),
            "out_TD": np.full((rows, WIDTH), np.nan, np.float32),
            "sum_T": np.full(rows, np.nan, np.float32),
            "count_B": np.zeros(32, np.int32),
        }

    def expect(self, arguments: dict[str, Array]) -> dict[str, Array]:
        """The outputs by the steps' own meaning, without any tiles."""
        state = {"x": arguments["x_TD"], "index": arguments["index_T"]}
        state["a"], state["b"] = state["x"].copy(), state["x"].copy()
        state["count"] = np.zeros(32, np.int32)
        for step in self.steps:
            step.apply(state)
        total = state["a"].sum(1, dtype=np.float64).astype(np.float32)
        return {"out_TD": state["a"], "sum_T": total, "count_B": state["count"]}


def random_kernel(seed: int, length: int = 6) -> RandomKernel:
    """Make a kernel.

    Args:
        seed: decides everything.
        length: how many steps.
    """
    from deepinfer_core.testing.tiles.fuzz_steps import STEPS

    generator = random.Random(seed)
    steps = tuple(generator.choice(STEPS)(generator) for _ in range(length))
    indent = " " * 12
    body = "".join(f"{indent}{line}\n" for step in steps for line in step.lines)
    text = (HEAD + body + TAIL).replace("{tile}", str(TILE)).replace("{width}", str(WIDTH))
    return RandomKernel(seed=seed, text=text, steps=steps)
