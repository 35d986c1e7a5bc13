"""How do the choices of a text completion become events?

A call of one choice has its tokens written where they come, as long as its client takes what it is
sent; nobody is woken for them. Where there are several choices, what is ready of all of them
becomes one write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from deepinfer_core.engine.outputs import TokenLogprob
from deepinfer_core.interfaces.async_engine import GenerateRequest, Tokens
from deepinfer_core.interfaces.protocol import DirectWrite
from deepinfer_core.server.completions.answers import usage_of
from deepinfer_core.server.completions.calls import CompletionCall
from deepinfer_core.server.dialect import json_bytes

__all__ = ["CompletionStream"]

_DONE = b"data: [DONE]\n\n"
"""The last event of a stream that did not fail."""


class CompletionStream:
    """A call that is answered in events; they differ in a few bytes only.

    Args:
        prepared: the call.
        head: fields that all events have.

    Attributes:
        requests: what the engine is to be asked.
    """

    def __init__(self, prepared: CompletionCall, head: Mapping[str, Any]) -> None:
        self._prepared = prepared
        self._head = head
        self._begin = b"data: " + json_bytes(head).removesuffix(b"}") + b',"choices":['
        self._end = b'],"usage":null}\n\n' if prepared.ask.with_usage else b"]}\n\n"
        self._direct: DirectWrite | None = None
        self.requests: tuple[GenerateRequest, ...] = prepared.requests
        if len(self.requests) == 1:
            self.requests = (replace(self.requests[0], taker=self.take),)
        part = {"index": 0, "text": "", "logprobs": None, "finish_reason": None}
        before, _, behind = json_bytes(part).partition(b'""')
        self._before_text, self._behind_text = self._begin + before, behind + self._end
        self._is_text_only = prepared.choices[0].is_text_only
        self._is_noted = False

    def begin(self, direct: DirectWrite) -> None:
        """There is a way to write at once."""
        self._direct = direct

    def take(
        self, token_ids: tuple[int, ...], text: str, logprobs: tuple[TokenLogprob, ...]
    ) -> bool:
        """Write what a step added to the only choice; see ``GenerateRequest.taker``."""
        # Whatever is done in here is done for every token of everybody.
        direct = self._direct
        if direct is None or not direct.is_free:
            return False
        if self._is_text_only:
            # Nothing but the text differs from event to event, and whoever waits has written all
            # that came before.
            if not self._is_noted:
                self._is_noted = True
                self._prepared.note_first_token()
            if text:
                direct.write(b"%b%b%b" % (self._before_text, json_bytes(text), self._behind_text))
            return True
        self._prepared.take(0, Tokens(token_ids, text, logprobs))
        if data := self.written((0,)):
            direct.write(data)
        return True

    def written(self, places: Iterable[int]) -> bytes:
        """Events with what is new of some choices; none if nothing of it is shown."""
        choices = self._prepared.choices
        parts = [part for place in places if (part := choices[place].part()) is not None]
        return b"".join([b"%b%b%b" % (self._begin, json_bytes(part), self._end) for part in parts])

    def end(self) -> bytes:
        """The last events of a call whose choices are all finished."""
        prepared = self._prepared
        usage = usage_of(prepared.choices, prepared.ask.samples, prepared.call.notes)
        if not prepared.ask.with_usage:
            return _DONE
        return (
            b"data: " + json_bytes({**self._head, "choices": [], "usage": usage}) + b"\n\n" + _DONE
        )
