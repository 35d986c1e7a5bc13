"""How do the events of a Responses stream become bytes?

They are numbered, and some carry the response, which is shown as it is stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from deepinfer_recipe_bridge.answer import Event
from deepinfer_recipe_bridge.dialects import event_bytes
from deepinfer_recipe_bridge.event_writer import EventWriter
from deepinfer_recipe_bridge.json_text import json_data, json_text
from deepinfer_recipe_bridge.response_failures import OpenResponse, OpenResponses

__all__ = ["ResponseWriter"]

_FIRST_EVENT = "response.created"
_LAST_EVENTS = frozenset(("response.completed", "response.incomplete"))
_WITH_RESPONSE = frozenset((_FIRST_EVENT, "response.in_progress")) | _LAST_EVENTS
_NUMBER = '"sequence_number":'


class ResponseWriter(EventWriter):
    """Writes the events of one stream.

    Args:
        name_of, before_text: see ``EventWriter``.
        finish: is given each response that is shown, and whether it is for the last time; brings it
            to the form in which it is sent, and says whether that is another one.
        streams: is told when the stream begins and ends.
        request_id: of the call.
    """

    __slots__ = ("_finish", "_lag", "_opened", "_request_id", "_streams")

    def __init__(
        self,
        name_of: Callable[[Event], str | None],
        before_text: re.Pattern[bytes],
        finish: Callable[[dict[str, Any], bool], bool],
        streams: OpenResponses,
        request_id: str,
    ) -> None:
        super().__init__(name_of, before_text)
        self._finish = finish
        self._streams = streams
        self._request_id = request_id
        self._opened = OpenResponse({})
        self._lag = 0

    def written(self, event: Event) -> bytes:
        """See ``EventWriter``."""
        kind, text = self._name_of(event), event.to_json()
        if self._lag:
            text = self._renumbered(text)
        if kind in _WITH_RESPONSE:
            shown = json_data(text)
            if self._finish(shown["response"], kind in _LAST_EVENTS):
                text = json_text(shown)
            if kind == _FIRST_EVENT:
                self._opened = self._streams.begun(self._request_id, shown["response"])
            elif kind in _LAST_EVENTS:
                self._streams.ended(self._request_id)
        self._opened.next_number += 1
        return event_bytes(text, kind)

    def learn(self, written: bytes, text: bytes) -> bool:
        """See ``EventWriter``."""
        end = b"%b%d}\n\n" % (_NUMBER.encode(), self._opened.next_number - 1)
        return written.endswith(end) and super().learn(
            written.removesuffix(end) + _NUMBER.encode(), text
        )

    def again(self, text: bytes) -> bytes:
        """See ``EventWriter``."""
        opened = self._opened
        number = opened.next_number
        opened.next_number = number + 1
        return b"%b%b%b%d}\n\n" % (self._head, text, self._tail, number)

    def left_out(self, count: int) -> None:
        """See ``EventWriter``."""
        self._lag += count

    def _renumbered(self, text: str) -> str:
        # The last one of this name is the event's own: what stands behind it is no data but text.
        before, name, behind = text.rpartition(_NUMBER)
        number = self._opened.next_number
        return f"{before}{name}{number}{behind.removeprefix(str(number - self._lag))}"
