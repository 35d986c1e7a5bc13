"""Which installed plugins work, and what do they offer together?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pluggy

from deepinfer_core.errors import NoUsableComponent
from deepinfer_core.interfaces.kinds import KNOWN_SLOTS
from deepinfer_core.plugin.children import Outcome, run_tasks
from deepinfer_core.plugin.describing import Described, describe_plugin, task_of
from deepinfer_core.plugin.discovery import (
    Installed,
    LoadPolicy,
    check_names,
    installed_plugins,
    refusal,
)
from deepinfer_core.plugin.hooks import new_manager
from deepinfer_core.plugin.requirements import Requirement
from deepinfer_core.plugin.specs import ComponentSpec, VerbSpec

__all__ = ["Offer", "PluginState", "PluginStatus", "Plugins", "load_plugins"]

PluginState = Literal["loaded", "blocked", "api-mismatch", "failed", "timed-out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginStatus:
    """One row of the plugin table.

    Attributes:
        plugin: the entry point.
        state: what became of it.
        reason: why; of a loaded plugin a warning, or empty.
        details: traceback or last output of a failure.
        load_s: time that loading took; 0 if it was not tried.
    """

    plugin: Installed
    state: PluginState
    reason: str = ""
    details: str = ""
    load_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Offer:
    """A component together with who offers it."""

    spec: ComponentSpec
    plugin: Installed

    @property
    def key(self) -> str:
        """Unique among all offers, also where two plugins use one name."""
        return f"{self.spec.kind} {self.spec.name} {self.plugin.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugins:
    """Everything that was found.

    Attributes:
        statuses: one for each installed plugin, sorted by distribution and name.
        offers: components of the loaded ones, sorted by kind, name and distribution.
        verbs: verbs of the loaded ones, with their plugins.
        manager: registry of the loaded ones, for the observing hooks.
    """

    statuses: tuple[PluginStatus, ...]
    offers: tuple[Offer, ...]
    verbs: tuple[tuple[VerbSpec, Installed], ...]
    manager: pluggy.PluginManager

    def missing(self, policy: LoadPolicy) -> list[NoUsableComponent]:
        """One error for each requirement that is not met."""
        return [
            error
            for requirement in policy.require
            if (error := _unmet(requirement, self.statuses)) is not None
        ]

    @property
    def failed(self) -> tuple[PluginStatus, ...]:
        """Plugins that broke."""
        return tuple(item for item in self.statuses if item.state in ("failed", "timed-out"))


def load_plugins(policy: LoadPolicy) -> Plugins:
    """Find and load plugins as the policy says. A broken plugin is a status, never an exception.

    Raises:
        ConfigError: ``block`` names the core, or nothing that is installed.
    """
    installed = installed_plugins()
    check_names(installed, policy)
    manager = new_manager()
    wanted = [item for item in installed if refusal(item, policy) is None and not item.problem]
    checked = _check_apart([item for item in wanted if not item.is_core], policy.load_timeout_s)
    statuses: list[PluginStatus] = []
    offers: list[Offer] = []
    verbs: list[tuple[VerbSpec, Installed]] = []
    for plugin in installed:
        refused = refusal(plugin, policy)
        if refused is not None:
            statuses.append(PluginStatus(plugin=plugin, state=refused[0], reason=refused[1]))
            continue
        if plugin.problem:
            statuses.append(_unreadable(plugin))
            continue
        status, described = _load(manager, plugin, checked.get(plugin))
        statuses.append(status)
        offers += [Offer(spec, plugin) for spec in described.components]
        verbs += [(verb, plugin) for verb in described.verbs]
    offers.sort(key=lambda item: (item.spec.kind, item.spec.name, item.plugin.key))
    return Plugins(
        statuses=_with_clashes(statuses, offers),
        offers=tuple(offers),
        verbs=tuple(verbs),
        manager=manager,
    )


def _unreadable(plugin: Installed) -> PluginStatus:
    return PluginStatus(
        plugin=plugin, state="failed", reason=plugin.problem, details=plugin.details
    )


def _check_apart(plugins: Sequence[Installed], timeout_s: float) -> Mapping[Installed, Outcome]:
    """Try foreign plugins where an abort or a hang does no harm."""
    tasks = [task_of(plugin) for plugin in plugins]
    outcomes = run_tasks("deepinfer_core.plugin.describe_child", tasks, timeout_s)
    return dict(zip(plugins, outcomes, strict=True))


def _load(
    manager: pluggy.PluginManager, plugin: Installed, checked: Outcome | None
) -> tuple[PluginStatus, Described]:
    nothing = Described()
    if checked is not None and checked.answer is None:
        state: PluginState = "timed-out" if checked.timed_out else "failed"
        return (
            PluginStatus(
                plugin=plugin,
                state=state,
                reason=f"{plugin.value} {checked.problem} while it was loaded",
                details=checked.output,
                load_s=checked.elapsed_s,
            ),
            nothing,
        )
    answer = checked.answer if checked is not None else None
    if answer is not None and answer["problem"]:
        failed = PluginStatus(
            plugin=plugin,
            state="failed",
            reason=answer["problem"],
            details=answer["details"],
            load_s=answer["load_s"],
        )
        return failed, nothing
    described = describe_plugin(manager, plugin)
    # The child saw the import first; here an earlier plugin may have paid for it already.
    heavy = tuple(answer["heavy"]) if answer is not None else described.heavy
    return _status(plugin, replace(described, heavy=heavy)), described


def _status(plugin: Installed, described: Described) -> PluginStatus:
    reason = described.problem
    if not reason and described.heavy:
        reason = (
            f"warning: its descriptor module imports {', '.join(described.heavy)}; "
            "such imports belong behind a factory"
        )
    if not reason:
        reason = "; ".join(filter(None, map(misfit, described.components)))
    if not reason and not described.components and not described.verbs:
        reason = "offers no component and no verb"
    return PluginStatus(
        plugin=plugin,
        state="failed" if described.problem else "loaded",
        reason=reason,
        details=described.details,
        load_s=described.load_s,
    )


def misfit(spec: ComponentSpec) -> str:
    """Why no slot of this core can ever take a component; empty if one can."""
    if spec.kind not in KNOWN_SLOTS:
        return f"{spec.name} fills a kind that this core does not know: {spec.kind}"
    unknown = [slot for slot in spec.slots if slot not in KNOWN_SLOTS[spec.kind]]
    if unknown:
        return f"{spec.name} fills unknown slots of {spec.kind}: {', '.join(unknown)}"
    return "" if spec.slots else f"{spec.name} fills no slot of {spec.kind}"


def _with_clashes(
    statuses: Sequence[PluginStatus], offers: Sequence[Offer]
) -> tuple[PluginStatus, ...]:
    """Add a warning to each plugin whose component names somebody else uses too."""
    marked: list[PluginStatus] = []
    for status in statuses:
        clashes = [
            f"{offer.spec.kind} {offer.spec.name} is also offered by {other.plugin.distribution}"
            for offer in offers
            for other in rivals(offer, offers)
            if offer.plugin == status.plugin
        ]
        reason = "; ".join([*([status.reason] if status.reason else []), *clashes])
        marked.append(replace(status, reason=reason))
    return tuple(marked)


def rivals(offer: Offer, offers: Sequence[Offer]) -> list[Offer]:
    """Other plugins' offers of the same kind under the same name."""
    return [
        other
        for other in offers
        if (other.spec.kind, other.spec.name) == (offer.spec.kind, offer.spec.name)
        and other.plugin != offer.plugin
    ]


def _unmet(requirement: Requirement, statuses: Sequence[PluginStatus]) -> NoUsableComponent | None:
    meant = [item for item in statuses if item.plugin.answers_to(requirement.name)]
    if not meant:
        known = ", ".join(sorted({item.plugin.distribution for item in statuses}))
        return NoUsableComponent(
            f"plugins.require names {requirement}, which is not installed",
            hint=f"distributions with plugins: {known}",
        )
    for item in meant:
        if item.state != "loaded":
            return NoUsableComponent(
                f"plugins.require names {requirement}, which is {item.state}: {item.reason}",
                hint=f"deepinfer plugins --why {item.plugin.name}",
            )
        if not requirement.accepts(item.plugin.version):
            return NoUsableComponent(
                f"plugins.require names {requirement}, found version {item.plugin.version}",
                hint=f"install another version of {item.plugin.distribution}",
            )
    return None
