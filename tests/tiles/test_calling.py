"""Calling: arguments are bound by name and checked; translated programs are kept."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tilelang
import tilelang.language as T
import torch
from deepinfer_core.testing.tiles import ArgumentMismatch, InterpretedKernels, interpret


@dataclass(frozen=True)
class Spec:
    width: int


BUILT: list[Spec] = []


def build(spec: Spec, tuning: int = 32) -> Any:
    BUILT.append(spec)
    rows = T.dynamic("rows")

    @T.prim_func
    def doubled(
        x: T.Tensor((rows, spec.width), "float32"), out: T.Tensor((rows, spec.width), "float32")
    ):
        with T.Kernel(rows, threads=tuning) as row:
            for i in T.Parallel(spec.width):
                out[row, i] = x[row, i] * 2

    return doubled


def fine() -> dict[str, Any]:
    return {"x": torch.ones(3, 4), "out": torch.zeros(3, 4)}


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("out", torch.zeros(3, 5), "extent of dimension 1 is 5, the program says 4$"),
        ("out", torch.zeros(2, 4), "extent of dimension 0 is 2, the program says rows = 3"),
        ("out", torch.zeros(3, 4, dtype=torch.float64), "'out' is float32 with 2 dimensions"),
        ("x", torch.zeros(3, 4, 1), "2 dimensions"),
        ("x", torch.zeros(4, 3).T, "stride of dimension 0 is 1, the program says 4$"),
        ("x", "words", "str"),
    ],
)
def test_an_argument_that_does_not_fit_is_named(name: str, tensor: Any, message: str) -> None:
    with pytest.raises(ArgumentMismatch, match=message):
        interpret(build(Spec(4)), fine() | {name: tensor})


@pytest.mark.parametrize(
    ("given", "kind"), [(build, "function"), (tilelang.jit(build), "JITImpl"), (None, "NoneType")]
)
def test_what_is_not_a_program_is_refused_with_what_to_pass(given: Any, kind: str) -> None:
    with pytest.raises(ArgumentMismatch, match=f"cannot interpret a {kind} as") as caught:
        interpret(given, fine())
    assert "pass the PrimFunc that the builder returns" in caught.value.hint


def test_a_missing_and_an_unknown_argument_are_named() -> None:
    arguments = fine()
    arguments["output"] = arguments.pop("out")
    with pytest.raises(ArgumentMismatch, match=r"missing: \['out'\], unknown: \['output'\]"):
        interpret(build(Spec(4)), arguments)


def test_numpy_arrays_are_written_in_place_whatever_their_strides() -> None:
    x, wide = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros((3, 8), np.float32)
    interpret(build(Spec(4)), {"x": x, "out": wide[:, ::2]})
    assert (wide[:, ::2] == 2 * x).all()
    assert (wide[:, 1::2] == 0).all()


def test_a_kernel_is_built_once_for_each_spec_and_tuning() -> None:
    kernels, first = InterpretedKernels(), fine()
    BUILT.clear()
    kernels.call(build, Spec(4), 32, **first)
    kernels.call(build, Spec(4), 32, **fine())
    kernels.call(build, Spec(4), 64, **fine())
    kernels.call(build, Spec(2), 32, x=torch.ones(1, 2), out=torch.zeros(1, 2))
    assert [Spec(4), Spec(4), Spec(2)] == BUILT
    assert kernels.calls == 4
    assert (first["out"] == 2).all()
