"""How do the events of an answer become bytes, and which of them are written at once?

Tokens are written where they come, without waking the task that waits for them, as long as the
client takes what it is sent. Everything else comes to that task, one behind the other: opening
events, what a slow client gets, and the end.
"""

from __future__ import annotations

from collections.abc import Callable

from deepinfer_core.interfaces.async_engine import Tokens
from deepinfer_core.interfaces.protocol import DirectWrite

from deepinfer_recipe_bridge.answer import Event
from deepinfer_recipe_bridge.prepared import Prepared

__all__ = ["EventStream"]


class EventStream:
    """One answer in events.

    Args:
        prepared: the request and what becomes of it.
        write: the bytes of an event; called once for each, in order.
    """

    def __init__(self, prepared: Prepared, write: Callable[[Event], bytes]) -> None:
        self._prepared = prepared
        self._notes = prepared.call.notes
        self._take = prepared.answer.take
        self._write = write
        self._is_free: Callable[[], bool] = _never
        self._send: Callable[[bytes], None]

    def begin(self, direct: DirectWrite) -> None:
        """There is a way to write at once."""
        # Behind a stop string somebody has to see that the answer is complete.
        if not self._prepared.answer.has_stops:
            self._is_free, self._send = direct.is_free, direct.write

    def take(self, tokens: Tokens) -> bool:
        """Write what a step added; see ``GenerateRequest.taker``."""
        # Whatever is done in here is done for every token of everybody.
        if not self._is_free():
            return False
        if self._notes.first_token_s is None:
            self._prepared.note_first_token()
        events = self._take(tokens)
        if len(events) == 1:
            self._send(self._write(events[0]))
        elif events:
            self._send(self.written(events))
        return True

    def written(self, events: list[Event]) -> bytes:
        """The bytes of events, none for none."""
        return b"".join([self._write(event) for event in events])


def _never() -> bool:
    return False
