"""What is a case of a kernel, and when is its result right?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.tolerance import assert_within

__all__ = ["POISON_INTEGER", "KernelCase", "complaints", "poisoned"]

Tensors = dict[str, torch.Tensor]

POISON_INTEGER = 77
"""Fits every integer dtype, and is neither a padding value nor a small index."""


@dataclass(frozen=True, kw_only=True)
class KernelCase:
    """One operator, compiled for one spec, on one kind of inputs.

    Attributes:
        operator: file name of its kernel in every backend, e.g. ``transform_rms_norm``.
        name: what is special, readable in a test id.
        spec: the operator's ``Spec``.
        arguments: makes all arguments by name, outputs and workspaces included; outputs poisoned.
            Fresh numbers for each generator state.
        expect: the outputs by name, computed by the twin. Gets a copy of the arguments.
        bounds: from arguments and expected outputs to the largest absolute difference of an
            output; an output without one must have the twin's bits. Derived, not chosen.
        small: an interpreter runs it in about a second.
        rows: that launch code plans for, where a kernel is tuned by that number; 0 if none is.
        moved_bytes: the fewest bytes that device memory must move, each input read once and each
            output written once; 0 where a case is not meant to be timed.
        flops: additions and multiplications of its matrix products.
        peer: another implementation to time next to it, on the same arguments: its name, and a
            call that may overwrite the outputs.
    """

    operator: str
    name: str
    spec: Any
    arguments: Callable[[torch.Generator], Tensors]
    expect: Callable[[Tensors], Tensors]
    bounds: Callable[[Tensors, Tensors], Tensors] = lambda _arguments, _expected: {}
    small: bool = True
    rows: int = 0
    moved_bytes: int = 0
    flops: int = 0
    peer: tuple[str, Callable[[Tensors], object]] | None = None

    @property
    def id(self) -> str:
        """Operator and name."""
        return f"{self.operator}[{self.name}]"


def poisoned(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """An output that nobody has written: NaN, or a number that no operator leaves by accident."""
    if dtype.is_floating_point:
        return torch.full(shape, torch.nan, dtype=torch.float32).to(dtype)
    return torch.full(shape, POISON_INTEGER, dtype=torch.int64).to(dtype)


def complaints(
    case: KernelCase, arguments: Tensors, expected: Tensors, results: Mapping[str, torch.Tensor]
) -> list[str]:
    """What is wrong with the results of a kernel; an empty list if nothing is.

    Args:
        case: names the bounds.
        arguments: as they were before the kernel ran.
        expected: from ``case.expect``.
        results: every argument by name after the kernel ran; inputs must be unchanged.
    """
    bounds = case.bounds(arguments, expected)
    found = []
    for name, result in results.items():
        try:
            if name not in expected:
                assert_same_bits(result, arguments[name])
            elif name in bounds:
                assert_within(result, expected[name].to(torch.float64), bounds[name])
            else:
                assert_same_bits(result, expected[name])
        except AssertionError as error:
            found.append(f"{name}: {error}")
    return found
