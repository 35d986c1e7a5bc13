"""What is written down about one call, for the access log and the metrics?

Numbers, times and words of our own. Of what a client wrote there is its request id and the name of
a model that is served, nothing else, not even its path: a call is named by the route that it took.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from time import monotonic

from deepinfer_core.interfaces.async_engine import AbortedBy
from deepinfer_core.interfaces.protocol import CallNotes
from deepinfer_core.telemetry.logs import get_logger

__all__ = ["NOBODY", "CallRecord", "write_access_log"]

CLIENT_GONE = 499
"""Status in the log of a call whose client went away; nobody is sent it."""

NOBODY = "none"
"""Owner of calls that no route took."""

_LOOKED_AT = frozenset({"server", "page"})
_SEEN = frozenset({200, 304, 503})
"""503 is what probes hear while the engine loads."""

_log = get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class CallRecord:
    """One call.

    Attributes:
        request_id: in logs and headers.
        method: of HTTP; empty if it is none of ours.
        route: path of the endpoint, with names in braces; empty: none was found.
        owner: component that answers, ``server`` for the shell, ``page`` for pages.
        key_label: of the key.
        status: that was sent; 0: none yet.
        error: ``code`` of the error, if there was one.
        client_gone: whether the client went away first.
        ended_by: who ended the call before its end; None: nobody, as far as the shell knows.
        notes: what the protocol said.
        arrived_s: on a monotonic clock.
    """

    request_id: str
    method: str = ""
    route: str = ""
    owner: str = NOBODY
    key_label: str = ""
    status: int = 0
    error: str = ""
    client_gone: bool = False
    ended_by: AbortedBy | None = None
    notes: CallNotes = field(default_factory=CallNotes)
    arrived_s: float = field(default_factory=monotonic)

    @property
    def is_look(self) -> bool:
        """Whether somebody looks how the server is, as probes and pages do again and again."""
        return self.owner in _LOOKED_AT and self.final_status in _SEEN

    @property
    def final_status(self) -> int:
        """What the log says: the status that was sent, or that the client had gone."""
        return CLIENT_GONE if self.client_gone else self.status

    def refused_by_connection(self) -> None:
        """Note that the connection answered: the body of the call was no HTTP."""
        self.status, self.error, self.client_gone = 400, "bad_framing", False


def write_access_log(record: CallRecord) -> None:
    """Log the end of a call; what only asks how the server is, at level debug."""
    level = logging.DEBUG if record.is_look else logging.INFO
    if not _log.isEnabledFor(level):
        return  # what follows takes a while
    notes = record.notes
    log = _log.debug if record.is_look else _log.info
    log(
        "call.answered",
        request_id=record.request_id,
        method=record.method,
        route=record.route,
        key=record.key_label,
        protocol=record.owner,
        model=notes.model,
        stream=notes.stream,
        status=record.final_status,
        error=record.error,
        prompt_tokens=notes.prompt_tokens,
        cached_tokens=notes.cached_tokens,
        completion_tokens=notes.completion_tokens,
        reasoning_tokens=notes.reasoning_tokens,
        images=notes.images,
        constraint=notes.constraint,
        finish_reason=notes.finish_reason,
        ended_by="client" if record.client_gone else record.ended_by or notes.ended_by,
        queue_ms=_ms(notes.queue_s),
        ttft_ms=_ms(notes.first_token_s),
        total_ms=_ms(monotonic() - record.arrived_s),
        client_gone=record.client_gone,
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 3)
