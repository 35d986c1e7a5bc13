"""How does a plugin describe what it offers?

A description is plain data. ``factory``, ``probe`` and ``options`` are ``module:name`` strings, so
that describing a component imports nothing it needs to run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import pluggy

from deepinfer_core.interfaces.component import Promise
from deepinfer_core.interfaces.kinds import PROPERTIES

__all__ = ["PROJECT", "ComponentSpec", "VerbSpec", "hookimpl", "hookspec"]

PROJECT = "deepinfer"
"""Name under which pluggy finds our markers."""

hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function of a plugin module as the implementation of the hook of that name."""

hookspec = pluggy.HookspecMarker(PROJECT)

_NAME = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")
_WORD = re.compile(r"[a-z][a-z0-9_]*")
_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_VERB = re.compile(r"[a-z][a-z0-9-]*")
_PROMISES = ("always", "on_request", "never")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentSpec:
    """One implementation of one kind.

    Attributes:
        kind: which contract it fulfils, e.g. ``sampler``.
        name: ``vendor.what`` in lower case; unique within its kind over all distributions.
        slots: slots of the kind that it can fill; one object may serve several.
        contract: revision of the kind's interface it was written against.
        factory: ``module:name`` of a callable ``(options, BuildContext) -> component``. ``options``
            is an instance of the options schema, or None without one.
        probe: ``module:name`` of a callable ``(ProbeContext) -> Verdict``; empty: always usable,
            score 0.
        options: ``module:name`` of a pydantic model; empty: takes no options.
        properties: promises by name; a property that is not listed counts as ``never``.
        devices: of a ``device``: the configured names it answers to. Of other kinds: the devices it
            runs on; empty leaves the question to the probe.
        facts: of a ``device``: module run with ``python -m`` that prints its facts as JSON.
        kernels: ``module:name`` of a callable ``() -> KernelCatalogue`` that lists the component's
            tile kernels for ``deepinfer bench kernels``; empty: it has none to show.
        parts: of its options those that choose other components of its kind: each a list of tables
            with the component's name in ``use`` and its own ``options``. The factory gets them,
            built, in ``BuildContext.parts``.
    """

    kind: str
    name: str
    slots: tuple[str, ...]
    contract: int
    factory: str
    probe: str = ""
    options: str = ""
    properties: Mapping[str, Promise] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    facts: str = ""
    kernels: str = ""
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what could only fail later.

        Raises:
            ValueError: a field has the wrong form; the message names the field.
        """
        object.__setattr__(self, "slots", _names("slots", self.slots))
        object.__setattr__(self, "devices", _names("devices", self.devices))
        object.__setattr__(self, "parts", _names("parts", self.parts))
        object.__setattr__(self, "properties", MappingProxyType(dict(self.properties)))
        _match("kind", self.kind, _WORD, "a word in lower case")
        _match("name", self.name, _NAME, "vendor.what in lower case")
        _match("factory", self.factory, _REFERENCE, "module:name")
        for name in ("probe", "options", "kernels"):
            if text := getattr(self, name):
                _match(name, text, _REFERENCE, "module:name, or empty")
        if self.facts:
            _match("facts", self.facts, _MODULE, "a module name, or empty")
        if type(self.contract) is not int or self.contract < 1:
            raise ValueError(f"contract = {self.contract!r}: expected a whole number from 1")
        for name, promise in self.properties.items():
            if name not in PROPERTIES:
                raise ValueError(f"properties name {name!r}: expected {', '.join(PROPERTIES)}")
            if promise not in _PROMISES:
                raise ValueError(f"property {name} = {promise!r}: expected {', '.join(_PROMISES)}")

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle without the read-only view, which does not pickle."""
        return _rebuild, tuple(
            dict(value) if isinstance(value, Mapping) else value
            for value in (getattr(self, name) for name in ComponentSpec.__slots__)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbSpec:
    """A verb that a plugin adds to the command line.

    Attributes:
        name: the word after ``deepinfer``; a verb of the core cannot be replaced.
        summary: one line for ``--help``.
        module: imported when the verb is chosen; has ``add_arguments(parser)`` and
            ``run(args) -> int``.
    """

    name: str
    summary: str
    module: str

    def __post_init__(self) -> None:
        """Refuse a malformed name or module.

        Raises:
            ValueError: names the field.
        """
        _match("name", self.name, _VERB, "lower case letters, digits and hyphens")
        _match("module", self.module, _MODULE, "a module name")


def _rebuild(*values: object) -> ComponentSpec:
    return ComponentSpec(**dict(zip(ComponentSpec.__slots__, values, strict=True)))  # type: ignore[arg-type]


def _match(name: str, value: object, pattern: re.Pattern[str], form: str) -> None:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"{name} = {value!r}: expected {form}")


def _names(name: str, value: object) -> tuple[str, ...]:
    """A tuple of words; a lone string would silently become its letters."""
    if isinstance(value, str) or not isinstance(value, tuple | list):
        raise ValueError(f"{name} = {value!r}: expected a tuple of names")
    if not all(isinstance(item, str) and item for item in value):
        raise ValueError(f"{name} = {value!r}: expected names only")
    return tuple(value)
