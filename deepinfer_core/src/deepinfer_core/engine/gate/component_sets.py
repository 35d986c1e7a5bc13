"""Which components does a condition run on?

A baseline belongs to the components that it was measured on, so the conditions name them: what
``auto`` picks may change with the next component that is installed. A device that is not listed
here is measured on whatever ``auto`` picks there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from deepinfer_core.config import LoadedSettings

__all__ = ["AUTO", "ComponentSet", "Numerics", "component_sets", "pins"]

Numerics = Literal["production", "semantic"]

AUTO = "auto"
"""Name of the set of a device that is not listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentSet:
    """Components that are measured together.

    Attributes:
        uses: name by kind; a kind that is left out is picked by ``auto``.
        numerics: what they compute in.
    """

    uses: Mapping[str, str]
    numerics: tuple[Numerics, ...] = ("production", "semantic")


def _uses(local: str, others: str) -> Mapping[str, str]:
    """One name for all kinds but the exchange between experts."""
    kinds = ("attention", "gemm", "transform", "all_to_all", "sampler")
    return MappingProxyType({kind: local if kind == "all_to_all" else others for kind in kinds})


_SETS: Mapping[str, Mapping[str, ComponentSet]] = MappingProxyType(
    {
        "cpu": {
            "core.reference": ComponentSet(uses=_uses("core.local", "core.reference")),
            "core.cpu": ComponentSet(uses=_uses("core.cpu", "core.cpu")),
        },
        "nvidia": {
            "nvidia.tilelang": ComponentSet(
                uses=_uses("core.local", "nvidia.tilelang"), numerics=("production",)
            ),
        },
    }
)
"""By device. Another set is another entry here; it is batch invariant on that device, as the
conditions ask for. ``core.reference`` on a GPU is not: torch's library picks other orders there."""


def component_sets(device: str) -> Mapping[str, ComponentSet]:
    """The sets of a device by name."""
    return _SETS.get(device, {AUTO: ComponentSet(uses={})})


def pins(name: str, loaded: LoadedSettings) -> list[str]:
    """Settings that choose a set, in the form of ``--set``.

    Only for kinds whose component nobody has chosen: a user's choice is measured as it is, and
    compared.

    Args:
        name: of a set of the configured device.
        loaded: the user's settings.
    """
    uses = component_sets(loaded.settings.device)[name].uses
    keys = {f"components.{kind}.use": use for kind, use in uses.items()}
    return [f"{key}={use}" for key, use in keys.items() if _is_open(key, loaded)]


def _is_open(key: str, loaded: LoadedSettings) -> bool:
    origin = loaded.origins.get(key)
    return origin is None or origin.kind == "default"
