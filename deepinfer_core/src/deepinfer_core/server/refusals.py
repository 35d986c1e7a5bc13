"""Which HTTP status does an error become, and when may the client try again?"""

from __future__ import annotations

from deepinfer_core.errors import (
    DeadlineExceeded,
    DeepInferError,
    EngineBusy,
    EngineUnavailable,
    NotFound,
    RequestError,
)
from deepinfer_core.interfaces.async_engine import AbortedBy
from deepinfer_core.server.unavailable import NotInTime, Stopping

__all__ = ["Refused", "ended_by", "out_of_time", "retry_after_s", "status_of", "unforeseen"]

_OUT_OF_TIME = "request_timeout"
_SOON_S = 1
_LATER_S = 5


class Refused(DeepInferError):
    """The shell refuses a request before a protocol sees it, or gives it up.

    Args:
        status: of HTTP.
        code: stable word for programs.
        message: what was asked and found; nothing of the body.
        hint: what to do about it.
        retry_after_s: after which it may be asked again; None: as usual for the status.
        headers: of the response, beside those of all responses.
    """

    code = "refused"

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        hint: str = "",
        retry_after_s: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.code = code
        self.retry_after_s = retry_after_s
        self.headers = headers or {}


def out_of_time(seconds: float) -> Refused:
    """What is said of an answer that took too long."""
    return Refused(503, _OUT_OF_TIME, f"the answer did not end within {seconds:g} s")


def unforeseen() -> DeepInferError:
    """What a client is told about a failure that nobody foresaw: nothing."""
    return Refused(500, "internal_error", "the server could not answer this request")


def status_of(error: DeepInferError) -> int:
    """Status of HTTP that says what an error means to a client."""
    match error:
        case Refused():
            return error.status
        case NotFound():
            return 404
        case DeadlineExceeded() | EngineUnavailable():
            return 503
        case RequestError():
            return 400
        case EngineBusy():
            return 429
        case _:
            return 500


def ended_by(error: DeepInferError) -> AbortedBy | None:
    """Who ended a call that failed with an error; None: nobody, it failed."""
    match error:
        case Stopping():
            return "shutdown"
        case DeadlineExceeded() | NotInTime():
            return "deadline"
        case Refused() if error.code == _OUT_OF_TIME:
            return "deadline"
        case _:
            return None


def retry_after_s(error: DeepInferError) -> int | None:
    """Whole seconds after which the same request may succeed; None: nobody knows."""
    if isinstance(error, Refused) and error.retry_after_s is not None:
        return error.retry_after_s
    return {429: _SOON_S, 503: _LATER_S}.get(status_of(error))
