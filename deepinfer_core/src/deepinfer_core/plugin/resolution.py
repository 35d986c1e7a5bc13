"""How does a configuration become one component for each slot?

Discover, load, ask the device, probe, choose: once, in the parent process, before any weight is
read. Observers and workers get the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import importlib_metadata

from deepinfer_core.errors import DeepInferError, NoUsableComponent
from deepinfer_core.interfaces.kinds import ALL_SLOTS, OPTIONAL_SLOTS, SERVED_SLOTS
from deepinfer_core.plugin.choice import SlotChoice, Wish, choose, slot_problems
from deepinfer_core.plugin.context import (
    BuildContext,
    DeviceFacts,
    DeviceTarget,
    ModelNeeds,
    ProbeContext,
)
from deepinfer_core.plugin.discovery import CORE, LoadPolicy, installed_versions
from deepinfer_core.plugin.facts import read_facts
from deepinfer_core.plugin.loading import Offer, Plugins, PluginStatus, load_plugins
from deepinfer_core.plugin.parts import Assembled, assemble
from deepinfer_core.plugin.probing import Candidate, judge
from deepinfer_core.plugin.report import Report
from deepinfer_core.plugin.resolved import Resolved

__all__ = ["Request", "Resolution", "resolve"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a configuration says about components, as plain data.

    Attributes:
        device: name of the device.
        wishes: one for each slot; where there is none, ``auto``, or ``none`` if it is optional.
        settings: options of the component in each (kind, slot).
        strict: properties that every component must promise.
        policy: which plugins are loaded.
        needs: what the model asks for.
        probe_timeout_s: for one probe, and for the facts of the device.
        cache_dir: folder where components may keep compiled kernels; empty: none is known.
        target: a device to resolve for that this machine need not have; None: this machine's.
    """

    device: str
    wishes: tuple[Wish, ...]
    settings: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    strict: tuple[str, ...] = ()
    policy: LoadPolicy = field(default_factory=LoadPolicy)
    needs: ModelNeeds = field(default_factory=ModelNeeds)
    probe_timeout_s: float = 20.0
    cache_dir: str = ""
    target: DeviceTarget | None = None


_MOST_TOLD = 3
"""Problems behind the first one whose messages are repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The result.

    Attributes:
        report: every candidate with its state and reason.
        plugins: what was loaded; holds the registry of observers.
        resolved: one component for each slot that is filled; None if there are problems.
    """

    report: Report
    plugins: Plugins
    resolved: Resolved | None

    def require(self) -> Resolved:
        """The choice.

        Raises:
            DeepInferError: the first problem, a PluginError or a ConfigError, which also tells of
                the next ones.
        """
        if self.resolved is not None:
            return self.resolved
        first, *others = self.report.problems
        if others:
            told = [one.message for one in others[:_MOST_TOLD]]
            if len(others) > _MOST_TOLD:
                told.append(f"{len(others) - _MOST_TOLD} more")
            raise type(first)(f"{first.message}; also: {'; '.join(told)}", hint=first.hint)
        raise first


def resolve(request: Request) -> Resolution:
    """Carry out all steps. Problems are recorded, so that a report is complete even then.

    Raises:
        ConfigError: ``plugins.block`` names the core, or nothing that is installed.
    """
    plugins = load_plugins(request.policy)
    needs = replace(request.needs, batch_invariant="batch_invariant" in request.strict)
    facts = _device_facts(request, plugins.offers)
    offers = [offer for offer in plugins.offers if offer.spec.kind not in SERVED_SLOTS]
    # Reading every distribution's metadata takes a while; the core's probes do not look at it.
    probed = any(offer.spec.probe and not offer.plugin.is_core for offer in offers)
    versions = installed_versions() if probed else {}
    context = ProbeContext(
        device=facts, needs=needs, versions=versions, cache_dir=request.cache_dir
    )
    candidates = judge(offers, context, request.strict, request.probe_timeout_s)
    choices = tuple(
        choose(wish, [item for item in candidates if item.spec.kind == wish.kind], request.device)
        for wish in _every_slot(request.wishes)
    )
    problems: list[DeepInferError] = [*plugins.missing(request.policy)]
    assembled = [
        _assemble(choice, choice.picked, request, candidates)
        for choice in choices
        if choice.picked is not None
    ]
    unfilled = [*slot_problems(choices), *(one for whole in assembled for one in whole.problems)]
    problems += [_with_absent(problem, plugins.statuses) for problem in unfilled]
    report = Report(device=facts, plugins=plugins.statuses, slots=choices, problems=tuple(problems))
    resolved = None if problems else _resolved(request, context, assembled)
    return Resolution(report=report, plugins=plugins, resolved=resolved)


def _with_absent(problem: NoUsableComponent, statuses: Sequence[PluginStatus]) -> NoUsableComponent:
    """Mention who might have filled the slot, had its plugin loaded."""
    absent = ", ".join(
        f"{one.plugin.name} ({one.state})" for one in statuses if one.state != "loaded"
    )
    if not absent:
        return problem
    return NoUsableComponent(problem.message, hint=f"{problem.hint}; plugins not loaded: {absent}")


def _every_slot(wishes: Sequence[Wish]) -> list[Wish]:
    given = {(wish.kind, wish.slot): wish for wish in wishes}
    return [
        given.get((kind, slot), Wish(kind=kind, slot=slot, use=use))
        for kind, slots in ALL_SLOTS.items()
        for use in ("none" if kind in OPTIONAL_SLOTS else "auto",)
        for slot in slots
    ]


def _device_facts(request: Request, offers: Sequence[Offer]) -> DeviceFacts:
    """Facts by the component that will be the device: the named one, else the first by name."""
    use = next((wish.use for wish in request.wishes if wish.kind == "device"), "auto")
    names = (use,) if isinstance(use, str) else use
    serving = [
        offer.spec
        for offer in offers
        if offer.spec.kind == "device" and request.device in offer.spec.devices
    ]
    named = [spec for spec in serving if spec.name in names]
    spec = next(iter(named or serving), None)
    if spec is None:
        return DeviceFacts(device=request.device, problem="no loaded plugin offers this device")
    return read_facts(request.device, spec.facts, request.probe_timeout_s, request.target)


def _resolved(request: Request, probed: ProbeContext, assembled: Sequence[Assembled]) -> Resolved:
    plugins = {plugin for whole in assembled for plugin in whole.plugins}
    versions = {(item.distribution, item.version) for item in plugins}
    versions.add((CORE, importlib_metadata.version(CORE)))
    context = BuildContext(
        device=request.device,
        needs=probed.needs,
        strict=request.strict,
        cache_dir=request.cache_dir,
        facts=probed.device,
    )
    picks = tuple(whole.pick for whole in assembled)
    return Resolved(context=context, picks=picks, distributions=tuple(sorted(versions)))


def _assemble(
    choice: SlotChoice, picked: Candidate, request: Request, candidates: Sequence[Candidate]
) -> Assembled:
    place = (choice.wish.kind, choice.wish.slot)
    # Options belong to what was named with them, not to what fills the slots that it leaves.
    use = choice.wish.use
    meant = use == "auto" or picked.spec.name in ((use,) if isinstance(use, str) else use)
    settings = request.settings.get(place, {}) if meant else {}
    of_kind = [one for one in candidates if one.spec.kind == place[0]]
    return assemble(picked, settings, choice.wish, of_kind, request.device)
