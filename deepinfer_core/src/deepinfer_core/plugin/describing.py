"""What happens when one plugin is loaded: imported, registered, asked for its components?

The same steps run twice: first in a child process, where an abort or a hang does no harm, then, for
a plugin that got through, here.
"""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from typing import Any

import pluggy
from importlib_metadata import EntryPoint

from deepinfer_core.interfaces.kinds import slot_title
from deepinfer_core.plugin.discovery import CORE, GROUP, Installed
from deepinfer_core.plugin.hooks import components_of, verbs_of
from deepinfer_core.plugin.resolved import describe
from deepinfer_core.plugin.specs import ComponentSpec, VerbSpec

__all__ = ["HEAVY", "Described", "describe_plugin"]

HEAVY = frozenset(
    {"httpx", "numpy", "tilelang", "torch", "torch_npu", "transformers", "triton", "xgrammar"}
)
"""Packages that a descriptor module must not import: discovery would pay for them each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What came of loading one plugin.

    Attributes:
        components, verbs: what it offers; empty after a failure.
        problem: the failure in one line; empty if there was none.
        details: traceback of the failure.
        heavy: heavy packages that came with the import.
        load_s: how long it took.
    """

    components: tuple[ComponentSpec, ...] = ()
    verbs: tuple[VerbSpec, ...] = ()
    problem: str = ""
    details: str = ""
    heavy: tuple[str, ...] = ()
    load_s: float = 0.0


def describe_plugin(manager: pluggy.PluginManager, plugin: Installed) -> Described:
    """Import, register and ask one plugin. Never raises for what the plugin does wrong."""
    started = time.monotonic()
    before = set(sys.modules)
    problem = details = ""
    components: tuple[ComponentSpec, ...] = ()
    verbs: tuple[VerbSpec, ...] = ()
    try:
        # Standard output belongs to the verb that runs, and may be read by a program.
        with contextlib.redirect_stdout(sys.stderr):
            components, verbs = _load(manager, plugin)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code, kept as a fact
        problem = describe(error) + _stale(plugin, error)
        details = "".join(traceback.format_exception(error))
        if manager.has_plugin(plugin.key):
            manager.unregister(name=plugin.key)
    imported = {name.partition(".")[0] for name in set(sys.modules) - before}
    return Described(
        components=components,
        verbs=verbs,
        problem=problem,
        details=details,
        heavy=tuple(sorted(HEAVY & imported)),
        load_s=time.monotonic() - started,
    )


def task_of(plugin: Installed) -> dict[str, Any]:
    """A plugin as a task for the child."""
    return asdict(plugin)


def _load(
    manager: pluggy.PluginManager, plugin: Installed
) -> tuple[tuple[ComponentSpec, ...], tuple[VerbSpec, ...]]:
    module = EntryPoint(name=plugin.name, value=plugin.value, group=GROUP).load()
    manager.register(module, name=plugin.key)
    # A hook that nobody declared is a slip of this plugin, and must not pass as "offers nothing".
    manager.check_pending()
    components = components_of(manager, plugin.key)
    for spec in components:
        if spec.name.startswith("core.") and plugin.distribution != CORE:
            raise ValueError(f"{spec.name}: names that begin with core. belong to {CORE}")
    places = [(spec.kind, spec.name) for spec in components]
    for kind, name in places:
        if places.count((kind, name)) > 1:
            raise ValueError(f"{slot_title(kind, kind)} {name} is described twice")
    return components, verbs_of(manager, plugin.key)


def _stale(plugin: Installed, error: BaseException) -> str:
    """Addition for metadata that outlived its module."""
    module = plugin.value.partition(":")[0].strip()
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing and (module == missing or module.startswith(f"{missing}.")):
        return f"; the metadata of {plugin.distribution} names a module that does not exist"
    return ""
