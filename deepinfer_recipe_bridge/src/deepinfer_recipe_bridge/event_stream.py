"""Which events of an answer are written at once, and which of them does the library make?

Tokens are written where they come, without waking the task that waits for them, as long as the
client takes what it is sent. Everything else comes to that task, one behind the other: opening
events, what a slow client gets, and the end.

Most tokens only make the text longer that the answer is at. Their events are written from the one
before, and the library is given the tokens later, many at once, which takes a tenth of the time:
before the next token of another kind, at the end, and every few hundred tokens.
"""

from __future__ import annotations

from deepinfer_core.engine.outputs import TokenLogprob
from deepinfer_core.errors import EngineError
from deepinfer_core.interfaces.protocol import DirectWrite

from deepinfer_recipe_bridge.answer import Event
from deepinfer_recipe_bridge.event_writer import EventWriter
from deepinfer_recipe_bridge.prepared import Prepared

__all__ = ["EventStream"]

_MOST_OWED = 256
"""Tokens that the library is given at once; reading them takes as long as writing a few."""


class EventStream:
    """One answer in events.

    Args:
        prepared: the request and what becomes of it.
        writer: of its events.
    """

    __slots__ = (
        "_answer", "_direct", "_is_noted", "_is_within_text", "_owed", "_plain", "_prepared",
        "_writer",
    )  # fmt: skip

    def __init__(self, prepared: Prepared, writer: EventWriter) -> None:
        self._prepared = prepared
        self._answer = prepared.answer
        self._plain = prepared.answer.plain
        self._writer = writer
        self._direct: DirectWrite | None = None
        self._is_noted = False
        self._is_within_text = False
        self._owed: list[int] = []

    def begin(self, direct: DirectWrite) -> None:
        """There is a way to write at once."""
        # Behind a stop string somebody has to see that the answer is complete.
        if not self._answer.has_stops:
            self._direct = direct

    def take(
        self, token_ids: tuple[int, ...], text: str, logprobs: tuple[TokenLogprob, ...]
    ) -> bool:
        """Write what a step added; see ``GenerateRequest.taker``."""
        # Whatever is done in here is done for every token of everybody.
        direct = self._direct
        if direct is None or not direct.is_free:
            return False
        if not self._is_noted:
            self._is_noted = True
            self._prepared.note_first_token()
        data, place = b"", 0
        if self._is_within_text and not logprobs:
            plain, again = self._plain, self._writer.again
            for token in token_ids:
                if (piece := plain.get(token)) is None:
                    break
                self._owed.append(token)
                data += again(piece)
                place += 1
        if place < len(token_ids):
            data += self._from_library(token_ids[place:], logprobs[place:])
        elif len(self._owed) >= _MOST_OWED:
            self.settle()
        if data:
            direct.write(data)
        return True

    def written(self, events: list[Event]) -> bytes:
        """The bytes of events of the library, none for none; ``settle`` comes before they do."""
        self._is_within_text = False
        return b"".join([self._writer.written(event) for event in events])

    def settle(self) -> None:
        """Give the library what was written without it.

        Raises:
            EngineError: it reads something else in it.
        """
        owed, self._owed = self._owed, []
        if not owed:
            return
        events = self._answer.lengthen(owed)
        text = b"".join([self._plain[token] for token in owed]).decode()
        if len(events) != 1 or f'"{text}"' not in events[0].to_json():
            raise EngineError(f"{len(owed)} tokens were written as text, and are none")
        self._writer.left_out(len(owed) - 1)

    def _from_library(
        self, token_ids: tuple[int, ...], logprobs: tuple[TokenLogprob, ...]
    ) -> bytes:
        """The bytes of what it makes of tokens; whether the answer is within a text behind them."""
        self.settle()
        data = self.written(self._answer.take(token_ids[:-1], logprobs[:-1]))
        last = self.written(self._answer.take(token_ids[-1:], logprobs[-1:]))
        piece = self._plain.get(token_ids[-1])
        if piece is not None and last.count(b"\n\n") == 1:
            self._is_within_text = self._writer.learn(last, piece)
        return data + last
