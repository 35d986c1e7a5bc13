"""Which components does a condition run on?

A baseline belongs to the components that it was measured on, so the conditions name them: what
``auto`` picks may change with the next component that is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from deepinfer_core.config import LoadedSettings

__all__ = ["COMPONENT_SETS", "ComponentSet", "pins"]

ComponentSet = Literal["core.reference", "core.cpu"]

COMPONENT_SETS: Mapping[ComponentSet, Mapping[str, str]] = MappingProxyType(
    {
        "core.reference": MappingProxyType(
            {
                "attention": "core.reference",
                "gemm": "core.reference",
                "transform": "core.reference",
                "all_to_all": "core.local",
                "sampler": "core.reference",
            }
        ),
        "core.cpu": MappingProxyType(
            dict.fromkeys(("attention", "gemm", "transform", "all_to_all", "sampler"), "core.cpu")
        ),
    }
)
"""Components on the CPU, by the kind that each serves. Another set is another entry here, its name
in ``ComponentSet``, and its rows in ``conditions``."""


def pins(name: ComponentSet, loaded: LoadedSettings) -> list[str]:
    """Settings that choose a set, in the form of ``--set``.

    Only on the CPU, and only for kinds whose component nobody has chosen: a user's choice is
    measured as it is, and compared.

    Args:
        name: of the set.
        loaded: the user's settings.
    """
    if loaded.settings.device != "cpu":
        return []
    keys = {f"components.{kind}.use": use for kind, use in COMPONENT_SETS[name].items()}
    return [f"{key}={use}" for key, use in keys.items() if _is_open(key, loaded)]


def _is_open(key: str, loaded: LoadedSettings) -> bool:
    origin = loaded.origins.get(key)
    return origin is None or origin.kind == "default"
