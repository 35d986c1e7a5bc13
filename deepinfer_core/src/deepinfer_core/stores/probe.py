"""Can stores that need others work here? Light: it says so without loading them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepinfer_core.plugin.context import Verdict

if TYPE_CHECKING:
    from deepinfer_core.plugin.context import ProbeContext

__all__ = ["probe_erasure", "probe_peers", "probe_tiered"]

_SCORE = -1
"""Below ``core.memory``: ``auto`` names no tiers, children or machines."""


def probe_tiered(context: ProbeContext) -> Verdict:
    """Anywhere; what its tiers need is their own business."""
    return Verdict(True, score=_SCORE, reason="of the stores that its options name")


def probe_peers(context: ProbeContext) -> Verdict:
    """Anywhere; whether the others are there shows when they are asked."""
    return Verdict(True, score=_SCORE, reason="of the machines that its options name")


def probe_erasure(context: ProbeContext) -> Verdict:
    """Anywhere; options choose what computes pieces, and building says if that is missing."""
    return Verdict(True, score=_SCORE, reason="of the stores that its options name")
