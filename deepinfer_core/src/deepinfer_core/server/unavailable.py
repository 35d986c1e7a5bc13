"""What is a request told that is not to blame, and may be asked again?"""

from __future__ import annotations

from deepinfer_core.errors import EngineUnavailable
from deepinfer_core.interfaces.async_engine import EngineState

__all__ = ["NotInTime", "Stopping", "cut_off", "lost", "not_ready"]

_NOT_READY = {
    "loading": "is being loaded",
    "draining": "is shutting down",
    "dead": "died, and is perhaps started again",
}


class Stopping(EngineUnavailable):
    """A service that stops has ended the request."""


class NotInTime(EngineUnavailable):
    """The request waited for its turn as long as it may."""


def not_ready(state: EngineState) -> EngineUnavailable:
    """It came while the engine takes none."""
    return EngineUnavailable(f"the engine {_NOT_READY[state]}", hint="ask again later")


def cut_off() -> Stopping:
    """It did not end in the time that a service takes to stop."""
    return Stopping(
        "the service is shutting down, and the request did not end in time",
        hint="ask again later",
    )


def lost(why: str) -> EngineUnavailable:
    """Its engine ended before it did."""
    return EngineUnavailable(f"{why}, and this request was in work", hint="ask again")
