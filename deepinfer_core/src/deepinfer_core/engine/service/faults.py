"""How does an error cross from one process to another?

By the code of its class, its message and its hint; tracebacks and causes stay behind, in the log of
the process that they happened in.
"""

from __future__ import annotations

from collections.abc import Iterator

from deepinfer_core.engine.service.messages import Fault
from deepinfer_core.errors import DeepInferError, EngineError

__all__ = ["error_of", "fault_of"]


def fault_of(error: BaseException) -> Fault:
    """What is sent about an error; a foreign one becomes an ``EngineError``."""
    if not isinstance(error, DeepInferError):
        text = " ".join(str(error).split())
        shown = f"{type(error).__name__}: {text}" if text else type(error).__name__
        error = EngineError(shown, hint="a defect; the log of the engine's process shows where")
    return Fault(error.code, error.message, error.hint)


def error_of(fault: Fault) -> DeepInferError:
    """The error again; of the nearest known class if its own is a plugin's."""
    known = {kind.code: kind for kind in _kinds(DeepInferError)}
    return known.get(fault.code, EngineError)(fault.message, hint=fault.hint)


def _kinds(root: type[DeepInferError]) -> Iterator[type[DeepInferError]]:
    """All classes that this process knows, those of the same code nearest to the root last."""
    for kind in root.__subclasses__():
        yield from _kinds(kind)
    yield root
