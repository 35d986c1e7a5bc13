"""Which operator of a model computes something else on other components, and what?

Every call runs twice: the specified component works on the model's own tensors, the other one on
copies of them. The model goes on with what the specified one wrote, so a difference shows in the
operator that makes it and nowhere behind, where it would grow: a row that was rounded the other way
can go to another expert.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch

from deepinfer_core.interfaces.component import Component, Plan
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.testing.paired_components import (
    PairedComponent,
    PairedForms,
    PairedPlan,
    specified_side,
)

__all__ = ["Written", "side_by_side"]

_SLOTS = ("prefill", "decode", "indexer", "codec", "dense", "grouped", "transform")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A tensor that one call wrote.

    Attributes:
        operator: slot and method, e.g. ``transform.rms_norm``.
        argument: its name; with a path into the argument where that is no tensor.
        wanted: what it holds behind the call of the specified component.
        found: behind that of the other one.
    """

    operator: str
    argument: str
    wanted: torch.Tensor
    found: torch.Tensor


def side_by_side(specified: ModelParts, other: ModelParts, seen: list[Written]) -> ModelParts:
    """Components for a model that is to compute as on the specified ones, watched.

    Args:
        specified: what the model computes with.
        other: what runs beside it, in the slots of attention, products and transforms.
        seen: gets every tensor that a call writes.
    """
    both: dict[str, Any] = {
        slot: _Watched(slot, getattr(specified, slot), getattr(other, slot), seen)
        for slot in _SLOTS
    }
    return replace(specified, **both)


class _Watched(PairedComponent):
    """Stands where the model calls a component."""

    def __init__(
        self, slot: str, specified: Component, other: Component, seen: list[Written]
    ) -> None:
        super().__init__(specified, other)
        self._slot, self._seen = slot, seen

    def call(
        self,
        name: str,
        specified: Callable[..., Any],
        other: Callable[..., Any],
        given: Mapping[str, Any],
    ) -> Any:
        """The other one on copies of the arguments."""
        copies: dict[int, torch.UntypedStorage] = {}
        copied = {key: _other_side(value, copies) for key, value in given.items()}
        before = {path: tensor.clone() for path, tensor in _tensors(given).items()}
        other(**copied)
        answer = specified(**{key: specified_side(value) for key, value in given.items()})
        found = _tensors(copied)
        for path, wanted in _tensors(given).items():
            if not (_is_same(before[path], wanted) and _is_same(before[path], found[path])):
                self._seen.append(
                    Written(
                        operator=f"{self._slot}.{name}",
                        argument=path,
                        wanted=wanted.clone(),
                        found=found[path].clone(),
                    )
                )
        return answer


def _other_side(value: Any, copies: dict[int, torch.UntypedStorage]) -> Any:
    """The same with copied tensors; those that share memory still do."""
    if isinstance(value, PairedPlan | PairedForms):
        return value.other
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        if storage.data_ptr() not in copies:
            copies[storage.data_ptr()] = storage.clone()  # type: ignore[no-untyped-call]
        copy = torch.empty(0, dtype=value.dtype, device=value.device)
        copy.set_(copies[storage.data_ptr()], value.storage_offset(), value.shape, value.stride())
        return copy
    if isinstance(value, tuple | list):
        return type(value)([_other_side(item, copies) for item in value])
    if is_dataclass(value) and not isinstance(value, type):
        inner = {one.name: getattr(value, one.name) for one in fields(value)}
        return replace(value, **{key: _other_side(item, copies) for key, item in inner.items()})
    return value


def _tensors(value: Any, path: str = "") -> dict[str, torch.Tensor]:
    """Every tensor in arguments, by its path; those of plans and weights are left out."""
    if isinstance(value, torch.Tensor):
        return {path: value}
    inner: Mapping[str, Any] = {}
    if isinstance(value, Mapping):
        inner = value
    elif isinstance(value, tuple | list):
        inner = {str(place): item for place, item in enumerate(value)}
    elif is_dataclass(value) and not isinstance(value, Plan | PairedForms | type):
        inner = {one.name: getattr(value, one.name) for one in fields(value)}
    found: dict[str, torch.Tensor] = {}
    for key, item in inner.items():
        found |= _tensors(item, f"{path}.{key}" if path else key)
    return found


def _is_same(one: torch.Tensor, two: torch.Tensor) -> bool:
    return bool(((one == two) | ((one != one) & (two != two))).all())
