"""Which component does a configuration pick for each slot, and do its options fit?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from deepinfer_core.config.kernel_cache import kernel_cache_folder
from deepinfer_core.config.loading import LoadedSettings
from deepinfer_core.config.option_problems import Place, options_problem
from deepinfer_core.config.origins import Origin
from deepinfer_core.config.settings import Settings
from deepinfer_core.errors import DeepInferError
from deepinfer_core.interfaces.kinds import ALL_SLOTS, slot_title
from deepinfer_core.plugin.choice import Wish
from deepinfer_core.plugin.context import DeviceFacts, DeviceTarget, ModelNeeds, ProbeContext
from deepinfer_core.plugin.discovery import LoadPolicy, installed_versions
from deepinfer_core.plugin.loading import Offer
from deepinfer_core.plugin.probing import Candidate, judge
from deepinfer_core.plugin.requirements import parse_requirement
from deepinfer_core.plugin.resolution import Request, Resolution, resolve
from deepinfer_core.plugin.resolved import Pick

__all__ = ["host_candidates", "load_policy", "resolve_components"]


def load_policy(settings: Settings) -> LoadPolicy:
    """What the settings say about loading plugins.

    Raises:
        ConfigError: an entry of ``plugins.require`` is no requirement.
    """
    plugins = settings.plugins
    return LoadPolicy(
        require=tuple(parse_requirement(text) for text in plugins.require),
        block=plugins.block,
        autoload=plugins.autoload,
        load_timeout_s=plugins.load_timeout_s,
    )


def resolve_components(
    loaded: LoadedSettings, needs: ModelNeeds | None = None, target: DeviceTarget | None = None
) -> Resolution:
    """Resolve every slot and validate the options of what was picked.

    Problems, those of options included, are in the resolution; its ``require()`` raises.

    Args:
        loaded: settings with the origin of each value.
        needs: what the model asks for; None if that is not known yet.
        target: a device to resolve for that this machine need not have; None: this machine's.

    Raises:
        ConfigError: ``plugins.require`` or ``plugins.block`` cannot be used.
    """
    settings = loaded.settings
    chosen = {
        (kind, slot): settings.components.chosen(kind, slot)
        for kind, slots in ALL_SLOTS.items()
        for slot in slots
    }
    request = Request(
        device=settings.device,
        wishes=tuple(
            Wish(kind=kind, slot=slot, use=choice.use, exact=exact)
            for (kind, slot), (choice, exact) in chosen.items()
        ),
        settings={place: choice.options for place, (choice, _) in chosen.items()},
        strict=settings.strict,
        policy=load_policy(settings),
        needs=needs or ModelNeeds(compute=settings.model.numerics.compute),
        probe_timeout_s=settings.plugins.probe_timeout_s,
        cache_dir=kernel_cache_folder(settings.kernels.cache_dir),
        target=target,
    )
    return _with_valid_options(resolve(request), loaded.origins)


def host_candidates(
    settings: Settings, offers: Sequence[Offer], kinds: Collection[str]
) -> list[Candidate]:
    """Components of kinds that run on the host, and whether each can.

    They run beside the engine, whose device and promises are none of their business.

    Args:
        settings: how long a probe may take.
        offers: what was found of all kinds.
        kinds: such as ``protocol`` and ``grammar``.
    """
    context = ProbeContext(
        device=DeviceFacts(device=settings.device),
        needs=ModelNeeds(),
        versions=installed_versions(),
    )
    asked = [offer for offer in offers if offer.spec.kind in kinds]
    return judge(asked, context, (), settings.plugins.probe_timeout_s)


def _with_valid_options(resolution: Resolution, origins: Mapping[str, Origin]) -> Resolution:
    if resolution.resolved is None:
        return resolution
    problems = [
        problem
        for pick in resolution.resolved.picks
        for problem in _options_problems(pick, partial(_options_key, pick, origins), origins)
    ]
    if not problems:
        return resolution
    # Slots that share a component repeat what is wrong with its options.
    unique = tuple({problem.message: problem for problem in problems}.values())
    report = replace(resolution.report, problems=unique)
    return replace(resolution, report=report, resolved=None)


def _options_problems(
    pick: Pick, key_of: Callable[[Place], str], origins: Mapping[str, Origin]
) -> list[DeepInferError]:
    """What is wrong with the options of a component, or with those of its parts."""
    own = options_problem(pick.spec, pick.settings, key_of, origins)
    if own is not None:
        return [own]
    return [
        problem
        for part in pick.parts
        for problem in _options_problems(part, partial(_key_within, key_of, part), origins)
    ]


def _key_within(key_of: Callable[[Place], str], part: Pick, place: Place) -> str:
    """Key of an option of a part, by the options of what it is a part of."""
    return key_of((*part.place, "options", *place))


def _options_key(pick: Pick, origins: Mapping[str, Origin], location: Place) -> str:
    """The key as the user wrote it: in the table of the slot, or in that of the kind."""
    own, of_kind = (
        ".".join(("components", title, "options", *location))
        for title in (slot_title(pick.kind, pick.slot), pick.kind)
    )
    return own if any(name == own or name.startswith(f"{own}.") for name in origins) else of_kind
