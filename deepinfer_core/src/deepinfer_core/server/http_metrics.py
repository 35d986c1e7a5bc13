"""What is counted about calls, and how does a scraper see it beside the engine's figures?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from time import monotonic

from deepinfer_core.server.call_record import CLIENT_GONE, NOBODY, CallRecord
from deepinfer_core.telemetry.board import Board, Series
from deepinfer_core.telemetry.metric import REQUEST_S, counter, gauge, histogram

__all__ = ["HTTP_METRICS", "HttpMetrics"]

_STATUSES = (200, 400, 401, 403, 404, 405, 408, 413, 415, 429, CLIENT_GONE, 500, 503)
_OTHER = "other"

HTTP_METRICS = (
    counter(
        "http_requests_total",
        "Calls that ended, by component and status; 499: the client went away.",
        "protocol",
        "status",
    ),
    histogram(
        "http_request_seconds",
        "From the arrival of a call to the end of its answer.",
        REQUEST_S,
        "protocol",
    ),
    histogram(
        "http_first_token_seconds",
        "From the arrival of a call to its first token, as its protocol says.",
        REQUEST_S,
        "protocol",
    ),
    gauge("http_requests_in_work", "Calls that are being answered."),
    gauge("http_requests_waiting", "Engine requests that wait for their caller's turn."),
    counter("http_clients_gone_total", "Clients that went away before their answer ended."),
)
"""Every metric of the server, in the order in which it is exposed."""


class HttpMetrics:
    """Figures of one server.

    Args:
        owners: components that answer calls.
        waiting: tells how many requests wait for their turn.
    """

    def __init__(self, owners: Iterable[str], waiting: Callable[[], int]) -> None:
        self._owners = frozenset((*owners, NOBODY))
        statuses = [*map(str, _STATUSES), _OTHER]
        names = sorted(self._owners)
        each = tuple((name,) for name in names)
        labelled = {
            "http_requests_total": tuple(product(names, statuses)),
            "http_request_seconds": each,
            "http_first_token_seconds": each,
        }
        self._board = Board({}, self._refresh, HTTP_METRICS, labelled)
        self._waiting = waiting

    def began(self) -> None:
        """Count a call that arrived."""
        with self._board.lock:
            self._board.number("http_requests_in_work").value += 1

    def ended(self, record: CallRecord) -> None:
        """Count a call that ended."""
        board, owner = self._board, record.owner
        status = str(record.final_status if record.final_status in _STATUSES else _OTHER)
        with board.lock:
            board.number("http_requests_in_work").value -= 1
            board.number("http_requests_total", owner, status).value += 1
            board.number("http_clients_gone_total").value += record.client_gone
            seconds = monotonic() - record.arrived_s
            board.distribution("http_request_seconds", owner).observe(seconds)
            if record.notes.first_token_s is not None:
                first = board.distribution("http_first_token_seconds", owner)
                first.observe(record.notes.first_token_s)

    def read(self) -> list[Series]:
        """All of them, as of one moment."""
        return self._board.read()

    def _refresh(self) -> None:
        self._board.number("http_requests_waiting").value = self._waiting()
