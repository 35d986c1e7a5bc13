"""How are hooks called, with types, and so that one plugin's failure stays its own?

pluggy's callers are untyped and let the first exception through. Each hook has one function here
that calls the implementations one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pluggy

from deepinfer_core.plugin import hookspecs
from deepinfer_core.plugin.resolved import describe
from deepinfer_core.plugin.specs import PROJECT, ComponentSpec, VerbSpec

if TYPE_CHECKING:
    from deepinfer_core.plugin.report import Report

__all__ = [
    "HookFailure",
    "components_of",
    "engine_started",
    "new_manager",
    "request_finished",
    "resolved",
    "verbs_of",
]


@dataclass(frozen=True, slots=True)
class HookFailure:
    """An observer that raised.

    Attributes:
        plugin: name under which the plugin is registered.
        hook: hook it implements.
        reason: the exception in one line.
    """

    plugin: str
    hook: str
    reason: str


def new_manager() -> pluggy.PluginManager:
    """A manager that knows our hooks and no plugin."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    return manager


def components_of(manager: pluggy.PluginManager, plugin: str) -> tuple[ComponentSpec, ...]:
    """What one plugin offers.

    Raises:
        TypeError: it answered with something else than component descriptions.
        Exception, SystemExit: whatever the plugin raised.
    """
    found = _described(manager, "deepinfer_components", plugin, ComponentSpec)
    return tuple(item for item in found if isinstance(item, ComponentSpec))


def verbs_of(manager: pluggy.PluginManager, plugin: str) -> tuple[VerbSpec, ...]:
    """Verbs that one plugin adds; raises like ``components_of``."""
    found = _described(manager, "deepinfer_cli_verbs", plugin, VerbSpec)
    return tuple(item for item in found if isinstance(item, VerbSpec))


def resolved(manager: pluggy.PluginManager, report: Report) -> list[HookFailure]:
    """Tell observers which components were picked."""
    return _tell(manager, "deepinfer_resolved", {"report": report})


def engine_started(manager: pluggy.PluginManager, info: Mapping[str, Any]) -> list[HookFailure]:
    """Tell observers that an engine is ready."""
    return _tell(manager, "deepinfer_engine_started", {"info": info})


def request_finished(
    manager: pluggy.PluginManager, summary: Mapping[str, Any]
) -> list[HookFailure]:
    """Tell observers how a request ended."""
    return _tell(manager, "deepinfer_request_finished", {"summary": summary})


def _calls(
    manager: pluggy.PluginManager, hook: str
) -> Iterator[tuple[str, tuple[str, ...], Callable[..., object]]]:
    """Plugin, wanted arguments and function of each implementation of a hook."""
    for item in getattr(manager.hook, hook).get_hookimpls():
        yield item.plugin_name, tuple(item.argnames), item.function


def _described(
    manager: pluggy.PluginManager, hook: str, plugin: str, kind: type[object]
) -> list[object]:
    found: list[object] = []
    for name, _, function in _calls(manager, hook):
        if name != plugin:
            continue
        answer = function()
        if isinstance(answer, str | bytes | Mapping) or not hasattr(answer, "__iter__"):
            raise TypeError(
                f"{hook} gave {type(answer).__name__}, expected an iterable of {kind.__name__}"
            )
        for item in answer:
            if not isinstance(item, kind):
                raise TypeError(
                    f"{hook} gave an item of type {type(item).__name__}, expected {kind.__name__}"
                )
            found.append(item)
    return found


def _tell(
    manager: pluggy.PluginManager, hook: str, arguments: Mapping[str, object]
) -> list[HookFailure]:
    failures: list[HookFailure] = []
    for plugin, wanted, function in _calls(manager, hook):
        try:
            function(**{name: arguments[name] for name in wanted})
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code, kept as a fact
            failures.append(HookFailure(plugin, hook, describe(error)))
    return failures
