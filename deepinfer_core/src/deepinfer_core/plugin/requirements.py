"""Does an installed version satisfy ``plugins.require``?

A small part of the common requirement syntax: a name and bounds on the release number. Extras,
markers and compatible-release clauses are refused.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from types import MappingProxyType

from deepinfer_core.errors import ConfigError

__all__ = ["Requirement", "normalised", "parse_requirement"]

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)\s*(.*)")
_BOUND = re.compile(r"(>=|<=|==|!=|>|<)\s*([0-9][\w.!+]*)")
_RELEASE = re.compile(r"(\d+(?:\.\d+)*)(.*)")
_PRE_RELEASE = re.compile(r"[._-]?(a|b|c|rc|alpha|beta|pre|preview|dev)")

_Version = tuple[tuple[int, ...], int]

_COMPARE: Mapping[str, Callable[[int, int], bool]] = MappingProxyType(
    {
        ">=": operator.ge,
        "<=": operator.le,
        "==": operator.eq,
        "!=": operator.ne,
        ">": operator.gt,
        "<": operator.lt,
    }
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """A distribution or plugin that must be loaded.

    Attributes:
        name: normalised name.
        bounds: (operator, version) pairs that must all hold.
    """

    name: str
    bounds: tuple[tuple[str, str], ...]

    def accepts(self, version: str) -> bool:
        """Whether a version satisfies all bounds."""
        return all(_COMPARE[sign](_order(version, bound), 0) for sign, bound in self.bounds)

    def __str__(self) -> str:
        """As it is written in a configuration."""
        return self.name + ",".join(sign + bound for sign, bound in self.bounds)


def normalised(name: str) -> str:
    """Spelling-independent form of a distribution name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_requirement(text: str) -> Requirement:
    """Read a text such as ``deepinfer-nvidia>=0.3,<0.5``.

    Raises:
        ConfigError: it has another form.
    """
    match = _REQUIREMENT.fullmatch(text)
    parts = [part.strip() for part in match[2].split(",") if part.strip()] if match else []
    bounds = [_BOUND.fullmatch(part) for part in parts]
    if match is None or None in bounds:
        raise ConfigError(
            f"plugins.require has {text!r}, which is no requirement",
            hint='e.g. "deepinfer-nvidia>=0.3,<0.5"',
        )
    return Requirement(
        normalised(match[1]), tuple((bound[1], bound[2]) for bound in bounds if bound)
    )


def _order(left: str, right: str) -> int:
    """Negative, zero or positive as ``left`` is older than, equal to or newer than ``right``."""
    (a, a_final), (b, b_final) = _version(left), _version(right)
    for x, y in zip_longest(a, b, fillvalue=0):
        if x != y:
            return x - y
    return a_final - b_final


def _version(text: str) -> _Version:
    match = _RELEASE.match(text)
    if match is None:
        return (), 0
    release = tuple(int(part) for part in match[1].split("."))
    return release, 0 if _PRE_RELEASE.match(match[2]) else 1
