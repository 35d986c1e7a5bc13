"""Which protocols are served, and do they fit this core?

They are found, described and configured like every component. Any number of them serve side by
side, so none is chosen over another: with ``server.protocols`` those that it names, otherwise every
installed one that works here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from deepinfer_core.config.kernel_cache import kernel_cache_folder
from deepinfer_core.config.loading import LoadedSettings
from deepinfer_core.config.option_problems import options_problem
from deepinfer_core.config.resolution import host_candidates, load_policy
from deepinfer_core.config.settings import Settings
from deepinfer_core.errors import ConfigError, NoUsableComponent
from deepinfer_core.interfaces.kinds import DISTRIBUTIONS
from deepinfer_core.interfaces.protocol import Protocol
from deepinfer_core.plugin.context import BuildContext, ModelNeeds
from deepinfer_core.plugin.loading import load_plugins
from deepinfer_core.plugin.probing import Candidate
from deepinfer_core.plugin.resolved import Pick, Resolved, load
from deepinfer_core.telemetry.logs import get_logger

__all__ = ["ServedProtocol", "serve_protocols"]

_KIND = "protocol"
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedProtocol:
    """A protocol that was built.

    Attributes:
        name: of the component.
        distribution: that offers it.
        options: as they were given.
        protocol: the component.
    """

    name: str
    distribution: str
    options: Mapping[str, Any]
    protocol: Protocol


def serve_protocols(loaded: LoadedSettings) -> tuple[ServedProtocol, ...]:
    """Find, check and build the protocols of a server, by name.

    Raises:
        NoUsableComponent: one that is named is not there or cannot run here, or there is none; or a
            plugin that ``plugins.require`` names is not there.
        ConfigError: options do not fit their protocol, or belong to none that is served.
        PluginFailed: a factory raised.
    """
    settings = loaded.settings
    policy = load_policy(settings)
    plugins = load_plugins(policy)
    missing = plugins.missing(policy)
    if missing:
        raise missing[0]
    chosen = _chosen(host_candidates(settings, plugins.offers, (_KIND,)), settings.server.protocols)
    _check_options(loaded, chosen)
    return tuple([_built(item, settings) for item in chosen])


def _chosen(candidates: Sequence[Candidate], names: tuple[str, ...] | None) -> list[Candidate]:
    if names is not None:
        return [_named(name, candidates) for name in dict.fromkeys(names)]
    for item in candidates:
        if not item.usable:
            _log.warning("protocol.left_out", protocol=item.spec.name, reason=item.reason)
    usable = [item for item in candidates if item.usable]
    if not usable:
        reasons = "; ".join(f"{item.spec.name}: {item.reason}" for item in candidates)
        raise NoUsableComponent(
            f"no protocol can be served: {reasons or 'no plugin offers one'}",
            hint="deepinfer plugins shows what was found; the core has core.completions",
        )
    return usable


def _named(name: str, candidates: Sequence[Candidate]) -> Candidate:
    found = [item for item in candidates if item.spec.name == name]
    usable = next((item for item in found if item.usable), None)
    if usable is not None:
        return usable
    if found:
        raise NoUsableComponent(
            f"server.protocols names {name}, which cannot be used: {found[0].reason}",
            hint=found[0].fix or f"deepinfer plugins --why {name}",
        )
    known = sorted({item.spec.name for item in candidates})
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    advice = f"did you mean {close[0]}? " if close else ""
    family = name.partition(".")[0]
    distribution = DISTRIBUTIONS.get(family)
    if distribution and not any(one.startswith(f"{family}.") for one in known):
        advice += f"install {distribution}, which offers it; "
    raise NoUsableComponent(
        f"server.protocols names {name}, which no loaded plugin offers",
        hint=f"{advice}protocols here: {', '.join(known) or 'none'}",
    )


def _check_options(loaded: LoadedSettings, chosen: Sequence[Candidate]) -> None:
    server = loaded.settings.server
    served = {item.spec.name for item in chosen}
    for vendor, protocols in server.protocol_options.items():
        for name in protocols:
            if f"{vendor}.{name}" not in served:
                raise ConfigError(
                    f"server.protocol_options.{vendor}.{name} is set, but that is not served",
                    hint=f"served: {', '.join(sorted(served))}",
                )
    for item in chosen:
        prefix = ("server", "protocol_options", item.spec.name)
        problem = options_problem(
            item.spec,
            server.options_of(item.spec.name),
            lambda place, prefix=prefix: ".".join((*prefix, *place)),  # type: ignore[misc]
            loaded.origins,
        )
        if problem is not None:
            raise problem


def _built(item: Candidate, settings: Settings) -> ServedProtocol:
    options = settings.server.options_of(item.spec.name)
    distribution = item.offer.plugin.distribution
    pick = Pick(kind=_KIND, slot=_KIND, spec=item.spec, settings=options, distribution=distribution)
    context = BuildContext(
        device=settings.device,
        needs=ModelNeeds(),
        strict=(),
        cache_dir=kernel_cache_folder(settings.kernels.cache_dir),
    )
    protocol: Protocol = load(Resolved(context=context, picks=(pick,), distributions=()), _KIND)
    return ServedProtocol(
        name=item.spec.name, distribution=distribution, options=options, protocol=protocol
    )
