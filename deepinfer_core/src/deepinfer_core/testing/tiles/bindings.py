"""Does a tensor fit the parameter that it is bound to, and where do its bytes lie?

Torch tensors and numpy arrays are taken as they are, strides included, and written in place.
Symbolic extents and strides take their values from the first tensor that shows them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepinfer_core.testing.tiles.faults import ArgumentMismatch
from deepinfer_core.testing.tiles.formats import numpy_dtype
from deepinfer_core.testing.tiles.memory import row_major
from deepinfer_core.testing.tiles.run import Run
from deepinfer_core.testing.tiles.scope import Scope

__all__ = ["Bound", "match", "solve"]

Array = NDArray[Any]

TORCH_NAMES = {
    "torch.bool": "bool", "torch.uint8": "uint8", "torch.uint16": "uint16",
    "torch.uint32": "uint32", "torch.uint64": "uint64", "torch.int8": "int8",
    "torch.int16": "int16", "torch.int32": "int32", "torch.int64": "int64",
    "torch.float16": "float16", "torch.float32": "float32", "torch.float64": "float64",
    "torch.bfloat16": "bfloat16", "torch.float8_e4m3fn": "float8_e4m3fn",
    "torch.float8_e5m2": "float8_e5m2", "torch.float8_e8m0fnu": "float8_e8m0fnu",
}  # fmt: skip


class Bound:
    """A caller's tensor as bytes with a shape; strides and offset are counted in elements."""

    def __init__(self, value: Any) -> None:
        self.target: Any = None
        if isinstance(value, np.ndarray):
            self.of_array(value)
        else:
            self.of_tensor(value)

    def of_array(self, value: Array) -> None:
        """Take a numpy array; a strided one is copied now and copied back at the end."""
        if not value.flags.c_contiguous:
            self.target, value = value, np.ascontiguousarray(value)
        self.held = value
        self.format = str(value.dtype)
        self.dtype, self.shape, self.offset = value.dtype, value.shape, 0
        self.strides: tuple[int, ...] = row_major(value.shape)
        self.raw = value.reshape(-1).view(np.uint8)

    def of_tensor(self, value: Any) -> None:
        """Take a torch tensor on the CPU, with whatever strides it has."""
        import torch

        name = TORCH_NAMES.get(str(getattr(value, "dtype", None)))
        if name is None or value.device.type != "cpu":
            raise ArgumentMismatch(
                f"cannot interpret a tile program on {type(value).__name__} "
                f"({getattr(value, 'dtype', 'no dtype')})",
                hint="pass torch tensors on the CPU or numpy arrays",
            )
        storage = value.untyped_storage()
        raw = torch.empty(0, dtype=torch.uint8).set_(storage)
        self.raw = raw.numpy() if storage.nbytes() else np.zeros(0, np.uint8)
        self.format, self.dtype = name, numpy_dtype(name)
        self.shape, self.strides = tuple(value.shape), tuple(value.stride())
        self.offset = int(value.storage_offset())

    def give_back(self) -> None:
        """Copy the contents into an array that could not be used in place."""
        if self.target is not None:
            self.target[...] = self.held


def match(parameters: Sequence[tuple[str, Any, Any]], arguments: Mapping[str, Any]) -> list[Bound]:
    """The arguments in the order of the parameters, with dtype and rank checked."""
    names = [name for name, _, _ in parameters]
    if set(names) != set(arguments):
        missing, unknown = sorted(set(names) - set(arguments)), sorted(set(arguments) - set(names))
        raise ArgumentMismatch(
            f"the program's parameters are {names}; missing: {missing}, unknown: {unknown}",
            hint="pass exactly one tensor for each parameter, by name",
        )
    bound = []
    for name, buffer, _ in parameters:
        tensor = Bound(arguments[name])
        wanted, rank = str(buffer.dtype), len(buffer.shape)
        if tensor.format != wanted or len(tensor.shape) != rank:
            raise ArgumentMismatch(
                f"parameter {name!r} is {wanted} with {rank} dimensions, "
                f"its argument is {tensor.format} {list(tensor.shape)}"
            )
        bound.append(tensor)
    return bound


def solve(scope: Scope, run: Run, name: str, buffer: Any, tensor: Bound) -> None:
    """Check extents and strides, giving symbolic ones their values on first sight."""
    for dimension, (wanted, found) in enumerate(zip(buffer.shape, tensor.shape, strict=True)):
        settle(scope, run, (name, f"extent of dimension {dimension}"), wanted, found)
    if not len(buffer.strides):
        return
    for dimension, wanted in enumerate(buffer.strides):
        if tensor.shape[dimension] > 1 or type(wanted).__name__ == "Var":
            found = tensor.strides[dimension]
            settle(scope, run, (name, f"stride of dimension {dimension}"), wanted, found)


def settle(scope: Scope, run: Run, what: tuple[str, str], wanted: Any, found: int) -> None:
    from deepinfer_core.testing.tiles.expressions import translate

    if type(wanted).__name__ == "Var":
        slot = scope.variables[wanted]
        if run.values[slot] is None:
            run.values[slot] = found
    expected = translate(scope, wanted)(run)
    if expected is not None and expected != found:
        said = str(expected) if str(wanted) == str(expected) else f"{wanted} = {expected}"
        raise ArgumentMismatch(
            f"parameter {what[0]!r}: the {what[1]} is {found}, the program says {said}"
        )
