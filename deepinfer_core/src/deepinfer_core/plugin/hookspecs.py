"""Which hooks may a plugin implement?

Hooks declare and observe; none of them changes what the engine does, and none runs while a token is
made. Implementations run in no particular order. One that raises is reported and skipped. An
implementation may leave out arguments it does not need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from deepinfer_core.plugin.specs import ComponentSpec, VerbSpec, hookspec

if TYPE_CHECKING:
    from deepinfer_core.plugin.report import Report

__all__ = [
    "deepinfer_cli_verbs",
    "deepinfer_components",
    "deepinfer_engine_started",
    "deepinfer_request_finished",
    "deepinfer_resolved",
]


@hookspec
def deepinfer_components() -> Iterable[ComponentSpec]:
    """Describe the components of this plugin. Imports nothing that they need to run."""
    raise NotImplementedError


@hookspec
def deepinfer_cli_verbs() -> Iterable[VerbSpec]:
    """Describe verbs that this plugin adds to the command line."""
    raise NotImplementedError


@hookspec
def deepinfer_resolved(report: Report) -> None:
    """See which component was picked for each slot, and why; before any weight is read."""
    raise NotImplementedError


@hookspec
def deepinfer_engine_started(info: Mapping[str, Any]) -> None:
    """See that an engine is ready: its device, sizes and limits, as plain data."""
    raise NotImplementedError


@hookspec
def deepinfer_request_finished(summary: Mapping[str, Any]) -> None:
    """See how a request ended: counts, times and finish reason, as plain data; never its text."""
    raise NotImplementedError
