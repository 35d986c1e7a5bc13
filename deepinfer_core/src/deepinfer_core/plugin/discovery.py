"""Which plugins are installed, and which of them should be loaded?

Only metadata is read; nothing is imported. The group name carries the API major, so a plugin for
another major is seen and named without running it. Whether something is installed is never asked
of the import system: a folder of that name in the working directory would say yes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from importlib_metadata import distributions

from deepinfer_core.errors import ConfigError
from deepinfer_core.plugin.requirements import Requirement, normalised

__all__ = [
    "API_MAJOR",
    "CORE",
    "GROUP",
    "Installed",
    "LoadPolicy",
    "check_names",
    "installed_plugins",
    "installed_versions",
    "refusal",
]

API_MAJOR = 1
"""Major number of the hooks and descriptions that this core understands."""

GROUP = f"deepinfer.plugins.v{API_MAJOR}"
CORE = "deepinfer-core"
_ANY_GROUP = re.compile(r"deepinfer\.plugins\.v(\d+)")


@dataclass(frozen=True, slots=True)
class Installed:
    """One entry point of one distribution.

    Attributes:
        name: name of the entry point.
        distribution: normalised name.
        version: version of the distribution.
        value: ``module`` or ``module:attribute``.
        api: major number in the group name.
    """

    name: str
    distribution: str
    version: str
    value: str
    api: int = API_MAJOR

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
    that speaks our major is not listed for others that it speaks as well.
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
    """Version of each installed distribution by normalised name; the first copy counts."""
    found: dict[str, str] = {}
    for distribution in distributions():
        name, version = _identity(distribution, "")
        found.setdefault(normalised(name), version)
    found.pop("", None)
    return found


def _entries(distribution: Any) -> Iterator[Installed]:
    try:
        ours = [item for item in distribution.entry_points if _ANY_GROUP.fullmatch(item.group)]
    except Exception:  # noqa: BLE001 - foreign metadata may be damaged in any way
        return
    for entry in ours:
        name, version = _identity(distribution, entry.name)
        yield Installed(
            name=entry.name,
            distribution=normalised(name),
            version=version,
            value=entry.value,
            api=int(entry.group.rpartition("v")[2]),
        )


def _identity(distribution: Any, fallback: str) -> tuple[str, str]:
    """Name and version, also of a distribution whose metadata file is missing or damaged."""
    try:
        return distribution.name or fallback, distribution.version or "unknown"
    except Exception:  # noqa: BLE001 - foreign metadata may be damaged in any way
        return fallback, "unknown"
