"""Where does a value come from?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from deepinfer_core.config.schema import Path

__all__ = ["Assignment", "Origin"]


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of one value.

    Attributes:
        kind: the layer; later layers win in the order default, file, environment, set, api.
        name: file and key, environment variable, or argument; empty for a default.
    """

    kind: Literal["default", "file", "environment", "set", "api"]
    name: str = ""

    def __str__(self) -> str:
        """How reports and messages name it."""
        return self.name or self.kind


@dataclass(frozen=True, slots=True)
class Assignment:
    """One value on its way into the settings.

    Attributes:
        path: key path.
        value: as read, before validation.
        origin: where it stands.
    """

    path: Path
    value: Any
    origin: Origin
