"""Which kernels would a backend call for what an engine really does, where its device is missing?

The components of the reference compute, with numbers, and those of the backend beside them only
note down their calls (``NotedKernels``). So tokens are drawn, drafts are verified and texts wait
for each other as they do in any engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from deepinfer_core.interfaces.component import Component
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.testing.paired_components import PairedComponent, other_side, specified_side

__all__ = ["NotedComponent", "noted_parts"]

_SLOTS = (
    "prefill", "decode", "indexer", "codec", "dense", "grouped", "transform", "all_to_all",
)  # fmt: skip


class NotedComponent(PairedComponent):
    """A component of the reference, and one that notes down what it would call.

    Args:
        specified: computes.
        other: notes down, and writes nothing that matters.
    """

    def __init__(self, specified: Component, other: Component) -> None:
        super().__init__(specified, other)
        self._dispatched: Any = None

    def call(
        self,
        name: str,
        specified: Callable[..., Any],
        other: Callable[..., Any],
        given: Mapping[str, Any],
    ) -> Any:
        """Note down, then compute."""
        others = {key: other_side(value) for key, value in given.items()}
        if "dispatched" in others:
            # Rows come back by a handle that belongs to who sent them.
            others["dispatched"] = self._dispatched
        self._dispatched = other(**others)
        return specified(**{key: specified_side(value) for key, value in given.items()})


def noted_parts(specified: ModelParts, other: ModelParts) -> ModelParts:
    """Components for a model that computes on the specified ones.

    Args:
        specified: what it computes with.
        other: note down their calls, in every slot but the device's.
    """
    both: dict[str, Any] = {
        slot: NotedComponent(getattr(specified, slot), getattr(other, slot)) for slot in _SLOTS
    }
    return replace(specified, **both)
