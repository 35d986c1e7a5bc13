"""Can blocks be kept in a shared folder here? Which folder it is, a probe is not told."""

from __future__ import annotations

from deepinfer_core.plugin import ProbeContext, Verdict

__all__ = ["posix"]

_SCORE = -1
"""Below ``core.memory``: ``auto`` names no folder."""


def posix(context: ProbeContext) -> Verdict:
    """Any folder will do."""
    return Verdict(True, score=_SCORE, reason="segment files in a folder")
