"""What was chosen, in a form that a worker process can receive and build from?

The parent discovers, probes and chooses once. A worker gets a ``Resolved``, compares versions and
imports only what was picked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pkgutil import resolve_name
from typing import Any

import importlib_metadata

from deepinfer_core.errors import DeepInferError, NoUsableComponent, PluginFailed, VersionSkew
from deepinfer_core.interfaces.kinds import ALL_SLOTS, INTERFACES, slot_title
from deepinfer_core.plugin.context import BuildContext
from deepinfer_core.plugin.specs import ComponentSpec

__all__ = ["Pick", "Resolved", "build_options", "load"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """The component that fills one slot.

    Attributes:
        kind, slot: the place.
        spec: the component's own description.
        settings: option values as given in the configuration.
        distribution: distribution that offers it.
        place: of a part: where it is chosen among the options of what it is a part of.
        parts: the components that its options choose.
    """

    kind: str
    slot: str
    spec: ComponentSpec
    settings: Mapping[str, Any]
    distribution: str
    place: tuple[str, ...] = ()
    parts: tuple[Pick, ...] = ()

    @property
    def identity(self) -> str:
        """Equal for two slots that one object can serve."""
        settings = json.dumps(dict(self.settings), sort_keys=True, default=str)
        return f"{self.kind}|{self.spec.name}|{settings}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """One component for each slot that is filled.

    Attributes:
        context: what factories are told.
        picks: one for each slot; none for an optional slot that was left empty.
        distributions: (normalised name, version) of each distribution that offers a pick.
    """

    context: BuildContext
    picks: tuple[Pick, ...]
    distributions: tuple[tuple[str, str], ...]
    _built: dict[str, object] = field(default_factory=dict, init=False, repr=False, compare=False)

    def fills(self, kind: str) -> bool:
        """Whether a component was picked for a kind; only an optional one may be left empty."""
        return any(pick.kind == kind for pick in self.picks)

    def pick(self, kind: str, slot: str | None = None) -> Pick:
        """The choice for one slot.

        Args:
            kind: a kind.
            slot: a slot of the kind; may be left out where the kind has one slot.

        Raises:
            NoUsableComponent: the kind or the slot does not exist, or is not filled.
        """
        place = slot or kind
        for pick in self.picks:
            if (pick.kind, pick.slot) == (kind, place):
                return pick
        known = ", ".join(slot_title(k, s) for k, slots in ALL_SLOTS.items() for s in slots)
        raise NoUsableComponent(
            f"no component was resolved for {slot_title(kind, place)}", hint=f"slots: {known}"
        )

    def verify_versions(self) -> None:
        """Compare the distributions of this process with those that were resolved.

        Raises:
            VersionSkew: one is missing here, or has another version.
        """
        for name, wanted in self.distributions:
            try:
                found = importlib_metadata.version(name)
            except importlib_metadata.PackageNotFoundError:
                found = "nothing"
            if found != wanted:
                raise VersionSkew(
                    f"{name} {wanted} was resolved, this process has {found}",
                    hint="give every worker the environment of its parent",
                )

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the choice, never the objects built from it."""
        return _rebuild, (self.context, self.picks, self.distributions)


def _rebuild(
    context: BuildContext, picks: tuple[Pick, ...], distributions: tuple[tuple[str, str], ...]
) -> Resolved:
    return Resolved(context=context, picks=picks, distributions=distributions)


def load(resolved: Resolved, kind: str, slot: str | None = None) -> Any:
    """The object that fills a slot, built on first use.

    Slots that share a component and its settings share the object. Objects live as long as
    ``resolved``; two engines resolve twice and share nothing.

    Args:
        resolved: the choice.
        kind: a kind.
        slot: a slot of the kind; may be left out where the kind has one slot.

    Returns:
        An instance of the interface of that slot.

    Raises:
        NoUsableComponent: the slot does not exist.
        PluginFailed: the factory raised, or returned something else.
        DeepInferError: whatever the factory raised of this project's own errors.
    """
    pick = resolved.pick(kind, slot)
    built = resolved._built
    if pick.identity not in built:
        built[pick.identity] = _build(pick, resolved.context)
    return _fitting(pick, built[pick.identity])


def build_options(spec: ComponentSpec, settings: Mapping[str, Any]) -> Any:
    """Turn option values into the component's own schema; None where it has none.

    A key that the schema does not name is refused, unless the schema says that it takes any; by
    itself pydantic drops such a key, and nobody learns that an option was misspelt.

    Raises:
        PluginFailed: the schema cannot be imported, or raised something else.
        ValueError: a value does not fit; pydantic's error is one.
    """
    if not spec.options:
        if settings:
            raise ValueError(f"{spec.name} takes no options, found {', '.join(settings)}")
        return None
    try:
        schema = resolve_name(spec.options)
        validate = schema.model_validate
    except (Exception, SystemExit) as error:
        raise PluginFailed(
            f"options schema {spec.options} of {spec.name} cannot be loaded: {describe(error)}"
        ) from error
    try:
        options = validate(dict(settings))
        _refuse_unknown(schema, settings)
        return options
    except ValueError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginFailed(
            f"options schema {spec.options} of {spec.name} broke on {dict(settings)}:"
            f" {describe(error)}"
        ) from error


def _refuse_unknown(schema: Any, settings: Mapping[str, Any]) -> None:
    """Validate once more by a twin of the schema that knows no other keys.

    Raises:
        ValueError: pydantic's error about a key.
    """
    config = getattr(schema, "model_config", None)
    if config is None or config.get("extra") in ("allow", "forbid"):
        return
    body = {"__module__": schema.__module__, "__doc__": schema.__doc__}
    twin = type(schema)(schema.__name__, (schema,), body, extra="forbid")
    twin.model_validate(dict(settings))


def _fitting(pick: Pick, component: object) -> object:
    interface = resolve_name(INTERFACES[pick.kind, pick.slot])
    if not isinstance(component, interface):
        raise PluginFailed(
            f"{slot_title(pick.kind, pick.slot)} needs a {interface.__name__}, "
            f"{pick.spec.factory} returned {type(component).__name__}",
            hint=f"report this to the authors of {pick.distribution}",
        )
    return component


def _build(pick: Pick, context: BuildContext) -> object:
    spec = pick.spec
    if pick.parts:
        parts = tuple(_fitting(part, _build(part, context)) for part in pick.parts)
        context = replace(context, parts=parts)
    try:
        factory = resolve_name(spec.factory)
        return factory(build_options(spec, pick.settings), context)
    except DeepInferError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginFailed(
            f"{spec.kind} {spec.name} of {pick.distribution} could not be built: {describe(error)}",
            hint=f"deepinfer plugins --why {spec.name}",
        ) from error


def describe(error: BaseException) -> str:
    """One line for a foreign exception."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
