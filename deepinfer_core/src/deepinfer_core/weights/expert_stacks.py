"""How do the experts of a layer become two stacks?

The grouped products take all experts at once: gate over up projections [E, 2 * I, D] and down
projections [E, D, I], for E experts of width I in a stream of width D. Each expert is read straight
into its rows of the stacks, so nothing exists twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from deepinfer_core.errors import WeightsError
from deepinfer_core.numeric import QuantTensor
from deepinfer_core.weights.coverage import FoundWeight
from deepinfer_core.weights.reading import STORAGE, Advanced, read_into
from deepinfer_core.weights.shard import TensorPlace

__all__ = ["read_stack"]


def read_stack(
    experts: Sequence[Sequence[FoundWeight]], advanced: Advanced | None = None
) -> QuantTensor:
    """Read the experts' matrices into one stack, joined along their rows.

    Args:
        experts: for each expert the matrices to put on top of each other; at least one expert.
        advanced: told about each piece.

    Returns:
        [E, sum of rows, columns] in values.

    Raises:
        WeightsError: the matrices are stored in different formats, cannot be joined in theirs, or
            cannot be read.
    """
    first = experts[0][0]
    for weight in (weight for expert in experts for weight in expert):
        if weight.format != first.format:
            raise WeightsError(
                f"asked for experts in one format, found {first.spec.name} in {first.format}"
                f" and {weight.spec.name} in {weight.format}",
                hint="export the experts of a layer in the same format",
            )
    if first.format == "fp8_32x32" and len(experts[0]) > 1 and first.spec.shape[0] % 32:
        raise WeightsError(
            f"asked to join {first.spec.name} with its sibling, found {first.spec.shape[0]} rows,"
            " which end inside a block of 32",
            hint="FP8 experts need a width that is a multiple of 32",
        )
    data = _fill([[weight.data for weight in expert] for expert in experts], advanced)
    if first.scale is None:
        return QuantTensor(data=data, scale=None, format=first.format)
    scales = [[weight.scale for weight in expert if weight.scale] for expert in experts]
    return QuantTensor(data=data, scale=_fill(scales, advanced), format=first.format)


def _fill(places: Sequence[Sequence[TensorPlace]], advanced: Advanced | None) -> torch.Tensor:
    rows = sum(place.tensor.shape[0] for place in places[0])
    tensor = places[0][0].tensor
    stack = torch.empty((len(places), rows, tensor.shape[1]), dtype=STORAGE[tensor.dtype])
    for expert, parts in enumerate(places):
        start = 0
        for place in parts:
            stop = start + place.tensor.shape[0]
            read_into(place, stack[expert, start:stop], advanced=advanced)
            start = stop
    return stack
