"""Can blocks be kept on a disk here? Light: it says so without loading what would do it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from deepinfer_core.plugin.context import Verdict

if TYPE_CHECKING:
    from deepinfer_core.plugin.context import ProbeContext

__all__ = ["probe"]

_SCORE = -1
"""Below ``core.memory``: ``auto`` names no folder."""


def probe(context: ProbeContext) -> Verdict:
    """Say what is missing."""
    if find_spec("fcntl") is None:
        return Verdict(False, reason="needs file locks of POSIX", fix="use core.memory")
    if find_spec("lmdb") is None:
        return Verdict(
            False,
            reason="needs the package lmdb",
            fix='pip install -e "./deepinfer_core[disk]"',
        )
    return Verdict(True, score=_SCORE, reason="LMDB")
