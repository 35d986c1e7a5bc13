"""Can the compiled kernels run here?

Compiles them if that has not been done: whether a compiler works is known when it has worked.
"""

from __future__ import annotations

from deepinfer_core.errors import DeviceError
from deepinfer_core.native.library import open_library
from deepinfer_core.plugin.context import ProbeContext, Verdict

__all__ = ["SCORE", "probe"]

SCORE = 10
"""Above ``core.reference``, which has no probe and so the score 0."""


def probe(context: ProbeContext) -> Verdict:
    """Say what is missing, or that the kernels are ready."""
    if context.needs.compute == "float64":
        return Verdict(
            False,
            reason="computes in float32; the model asks for float64",
            fix="core.reference computes in float64",
        )
    try:
        open_library(context.cache_dir)
    except DeviceError as error:
        return Verdict(False, reason=error.message, fix=error.hint, mendable=True)
    return Verdict(True, score=SCORE, reason="compiled kernels")
