"""Which plugins are installed, and which of them should be loaded?

Only metadata is read; nothing is imported. The group name carries the API major, so a plugin for
another major is seen and named without running it. Whether something is installed is never asked
of the import system: a folder of that name in the working directory would say yes.
"""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from importlib_metadata import EntryPoint, distributions

from deepinfer_core.errors import ConfigError
from deepinfer_core.plugin.requirements import Requirement, normalised

__all__ = [
    "API_MAJOR",
    "CORE",
    "GROUP",
    "Installed",
    "LoadPolicy",
    "check_names",
    "entry_points",
    "installed_plugins",
    "installed_versions",
    "refusal",
]

API_MAJOR = 1
"""Major number of the hooks and descriptions that this core understands."""

GROUP = f"deepinfer.plugins.v{API_MAJOR}"
CORE = "deepinfer-core"
_ANY_GROUP = re.compile(r"deepinfer\.plugins\.v(\d+)")
_OURS = re.compile(r"deepinfer\.(plugins|checkpoints)\.v\d")
_NAMELESS = "unknown"


@dataclass(frozen=True, slots=True)
class Installed:
    """One entry point of one distribution.

    Attributes:
        name: name of the entry point.
        distribution: normalised name.
        version: version of the distribution.
        value: ``module`` or ``module:attribute``.
        api: major number in the group name.
        problem: what of its metadata cannot be read, in one line; empty if all can.
        details: traceback of the problem.
    """

    name: str
    distribution: str
    version: str
    value: str
    api: int = API_MAJOR
    problem: str = ""
    details: str = ""

    @property
    def key(self) -> str:
        """Name under which it is registered; two distributions may use one short name."""
        return f"{self.distribution}:{self.name}"

    @property
    def is_core(self) -> bool:
        """Whether the core itself offers it."""
        return self.distribution == CORE

    def answers_to(self, name: str) -> bool:
        """Whether a configuration means this plugin by ``name``."""
        return normalised(name) in (normalised(self.name), self.distribution)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPolicy:
    """What the configuration says about loading.

    Attributes:
        require: plugins that must be loaded.
        block: plugins that must not be.
        autoload: load the others too.
        load_timeout_s: for the import and the description of one plugin.
    """

    require: tuple[Requirement, ...] = ()
    block: tuple[str, ...] = ()
    autoload: bool = True
    load_timeout_s: float = 20.0


def installed_plugins() -> tuple[Installed, ...]:
    """All plugins of any API major, sorted by distribution and name, each once.

    Of two copies of a distribution on the path the first counts, as for imports. A distribution
    that speaks our major is not listed for others that it speaks as well. A plugin whose metadata
    cannot be read is listed with its ``problem``.
    """
    copies: dict[str, list[Installed]] = {}
    for distribution in distributions():
        found = list(_entries(distribution))
        if found:
            copies.setdefault(found[0].distribution, found)
    listed = {
        item
        for items in copies.values()
        for item in items
        if item.api == API_MAJOR or all(other.api != API_MAJOR for other in items)
    }
    return tuple(sorted(listed, key=lambda item: (item.distribution, item.name, item.value)))


def refusal(
    plugin: Installed, policy: LoadPolicy
) -> tuple[Literal["api-mismatch", "blocked"], str] | None:
    """State and reason of a plugin that is not to be loaded; None for one that is."""
    if plugin.api != API_MAJOR:
        return "api-mismatch", f"speaks v{plugin.api}, this core speaks v{API_MAJOR}"
    if plugin.is_core:
        return None
    if any(plugin.answers_to(name) for name in policy.block):
        return "blocked", "plugins.block names it"
    required = any(plugin.answers_to(item.name) for item in policy.require)
    if not policy.autoload and not required:
        return "blocked", "plugins.autoload is off and plugins.require does not name it"
    return None


def check_names(plugins: Sequence[Installed], policy: LoadPolicy) -> None:
    """Refuse to block what does not exist or cannot be missed.

    Raises:
        ConfigError: ``block`` names the core, or nothing that is installed.
    """
    for name in policy.block:
        meant = [plugin for plugin in plugins if plugin.answers_to(name)]
        if any(plugin.is_core for plugin in meant):
            raise ConfigError(f"plugins.block names {name!r}, the core itself")
        if not meant:
            known = sorted({plugin.name for plugin in plugins if not plugin.is_core})
            raise ConfigError(
                f"plugins.block names {name!r}, which is not installed",
                hint=f"plugins here: {', '.join(known) or 'none but the core'}",
            )


def installed_versions() -> dict[str, str]:
    """Version of each installed distribution by normalised name; the first copy counts.

    One whose metadata cannot be read has no name to stand under; a plugin among them is listed by
    ``installed_plugins`` with the reason.
    """
    found: dict[str, str] = {}
    for distribution in distributions():
        name, version, _ = _identity(distribution)
        found.setdefault(normalised(name), version)
    found.pop("", None)
    return found


def entry_points(group: str) -> list[EntryPoint]:
    """Everybody's entry points of a group; of two copies of a distribution the first counts.

    A distribution whose entry points cannot be read is left out here, and hides nobody else;
    ``installed_plugins`` names it if it belongs to this project.
    """
    copies: dict[str, list[EntryPoint]] = {}
    for distribution in distributions():
        name, _, _ = _identity(distribution)
        with contextlib.suppress(Exception):  # foreign metadata may be damaged in any way
            found = list(distribution.entry_points.select(group=group))
            copies.setdefault(normalised(name) or f"nameless {len(copies)}", found)
    return [item for found in copies.values() for item in found]


def _entries(distribution: Any) -> Iterator[Installed]:
    """Our entry points of one distribution, or one stand-in for those that cannot be read."""
    try:
        ours = [item for item in distribution.entry_points if _ANY_GROUP.fullmatch(item.group)]
    except Exception as error:  # noqa: BLE001 - foreign metadata may be damaged in any way
        if _names_our_group(distribution, error):
            name, version, _ = _identity(distribution)
            title, damage = name or _NAMELESS, _Damage.of("its entry points", error)
            yield _installed(title, title, version, "-", API_MAJOR, damage)
        return
    if ours:  # reading the metadata of all the others would take most of the time
        name, version, damage = _identity(distribution)
    for entry in ours:
        api = int(entry.group.rpartition("v")[2])
        yield _installed(entry.name, name or entry.name, version, entry.value, api, damage)


@dataclass(frozen=True, slots=True)
class _Damage:
    """What of a distribution's metadata cannot be read, and why; empty if all can."""

    problem: str = ""
    details: str = ""

    @classmethod
    def of(cls, part: str, error: Exception) -> _Damage:
        text = " ".join(str(error).split())
        problem = f"{part} cannot be read: {type(error).__name__}: {text}"
        return cls(problem, "".join(traceback.format_exception(error)))


def _installed(
    name: str, distribution: str, version: str, value: str, api: int, damage: _Damage
) -> Installed:
    return Installed(
        name=name,
        distribution=normalised(distribution),
        version=version,
        value=value,
        api=api,
        problem=damage.problem,
        details=damage.details,
    )


def _names_our_group(distribution: Any, error: Exception) -> bool:
    """Whether entry points that cannot be read are likely to concern this project."""
    if isinstance(error, UnicodeDecodeError):
        text = error.object.replace(b"\0", b"").decode(errors="replace")
    else:
        text = distribution.read_text("entry_points.txt") or ""
    return _OURS.search(text) is not None


def _identity(distribution: Any) -> tuple[str, str, _Damage]:
    """Name, empty if unknown, and version, also where the metadata file is missing or damaged."""
    try:
        found = distribution.metadata or {}  # each reading parses the file anew
        return found.get("Name") or "", found.get("Version") or "unknown", _Damage()
    except Exception as error:  # noqa: BLE001 - foreign metadata may be damaged in any way
        return "", "unknown", _Damage.of("its metadata", error)
