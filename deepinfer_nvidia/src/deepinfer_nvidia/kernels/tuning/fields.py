"""Do the objects of a table have the fields that they must have, and no others?"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, get_type_hints

from deepinfer_core.errors import ConfigError

from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["read_tuning", "require_names", "wrong"]


def read_tuning(place: str, given: dict[str, Any], tuning: type[KernelTuning]) -> KernelTuning:
    """The tuning; compiler switches belong to the kernel's file, not to a table.

    Raises:
        ConfigError: names the field that is unknown, missing or of another type.
    """
    known = {one.name: one for one in fields(tuning) if one.name != "pass_configs"}
    types = get_type_hints(tuning)
    for name, value in given.items():
        if name not in known:
            raise wrong(place, f"tuning.{name}", f"there is {', '.join(sorted(known))}")
        if type(value) is not types[name]:
            advice = f"it is of type {types[name].__name__}"
            raise wrong(place, f"tuning.{name} = {value!r}", advice)
    missing = [name for name, one in known.items() if one.default is MISSING and name not in given]
    if missing:
        raise wrong(place, "a tuning", f"it needs {', '.join(missing)}")
    return tuning(**given)


def require_names(place: str, given: dict[str, Any], names: tuple[str, ...]) -> None:
    """All of these names and no others.

    Raises:
        ConfigError: names the first that is unknown or missing.
    """
    for name in (*given, *names):
        if (name in given) != (name in names):
            word = "unknown" if name in given else "missing"
            raise wrong(place, f"{word} {name!r}", f"it has {', '.join(names)}")


def wrong(place: str, found: str, advice: str) -> ConfigError:
    """What is to be raised."""
    return ConfigError(f"asked for the tunings of {place}, found {found}", hint=advice)
