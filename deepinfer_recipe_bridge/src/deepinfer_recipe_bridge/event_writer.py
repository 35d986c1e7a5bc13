"""How do the events of a stream become bytes?

An event that only makes a text longer is the one before with another text, so it is put together
from the bytes of that one. The library's own bytes are the pattern: nothing of their form is known
here but where the text stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from deepinfer_recipe_bridge.answer import Event
from deepinfer_recipe_bridge.dialects import event_bytes

__all__ = ["EventWriter"]


class EventWriter:
    """Writes the events of one stream; each is written once, in order.

    Args:
        name_of: name of an event, or None.
        before_text: what stands before the text of an event that adds to one, quote included.
    """

    __slots__ = ("_before_text", "_head", "_name_of", "_tail")

    def __init__(
        self, name_of: Callable[[Event], str | None], before_text: re.Pattern[bytes]
    ) -> None:
        self._name_of = name_of
        self._before_text = before_text
        self._head = self._tail = b""

    def written(self, event: Event) -> bytes:
        """The bytes of an event of the library."""
        return event_bytes(event.to_json(), self._name_of(event))

    def learn(self, written: bytes, text: bytes) -> bool:
        """Take an event for the pattern of those that follow.

        Args:
            written: its bytes.
            text: what it may have added, as in JSON.

        Returns:
            Whether it added that to a text; otherwise nothing is learnt.
        """
        found = self._before_text.search(written)
        if found is None or not written.startswith(text + b'"', found.end()):
            return False
        self._head, self._tail = written[: found.end()], written[found.end() + len(text) :]
        return True

    def again(self, text: bytes) -> bytes:
        """The bytes of the event that was learnt, with another text."""
        return b"%b%b%b" % (self._head, text, self._tail)

    def left_out(self, count: int) -> None:
        """The library made fewer events than were written, by so many."""
