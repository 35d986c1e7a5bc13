"""What does a device function do that only asks for memory ahead of its use?

Nothing that shows, but what it asks for must be there: the element that it begins with and the
bytes behind it lie in one line of the buffer, and both are multiples of 16 bytes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from deepinfer_core.testing.tiles.accesses import cell_numbers
from deepinfer_core.testing.tiles.faults import IndexOutOfRange, UnknownTileOperation
from deepinfer_core.testing.tiles.run import Run
from deepinfer_core.testing.tiles.scope import Evaluate, Perform, Scope

__all__ = ["REQUESTS", "translate_request"]

Translate = Callable[[Scope, Any], Evaluate]

REQUESTS = {"deepinfer_bring_nearer"}
"""By name: from the address of an element, so many bytes."""

_UNIT_BYTES = 16


def translate_request(scope: Scope, node: Any, translate: Translate) -> Perform:
    """The closure of a call by name whose value nobody uses.

    Raises:
        UnknownTileOperation: the function is none of ``REQUESTS``.
    """
    name = str(node.args[0].value)
    if name not in REQUESTS:
        raise UnknownTileOperation(name, "a device function that is called for its effect")
    load, size = node.args[1].args[0], int(node.args[2].value)
    facts = scope.buffer(load.buffer)
    indices = [translate(scope, index) for index in load.indices]

    def perform(run: Run) -> None:
        view = run.views[facts.slot]
        first = [index(run) for index in indices]
        behind = first[-1] + (size // view.dtype.itemsize - 1)
        cells = cell_numbers(run, view, first)
        cell_numbers(run, view, [*first[:-1], behind])
        uneven = np.asarray(
            (cells * view.dtype.itemsize % _UNIT_BYTES != 0) | (size % _UNIT_BYTES != 0)
        )
        if run.mask is not None:
            uneven = uneven & run.mask
        if uneven.any():
            raise IndexOutOfRange(
                f"{name} asks for {size} bytes of {view.name!r} {list(view.shape)}, of which "
                f"the first or the last is at no multiple of {_UNIT_BYTES} bytes",
                hint="ask from a multiple on, or for nothing",
            )

    return perform
