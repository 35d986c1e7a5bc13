"""What did one request show, from the moment at which it was due to its last byte?"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from deepinfer_core.bench.serve.events import Chunk, EventSplitter, decode

__all__ = ["Exchange"]

_DONE = b"[DONE]"
_SHOWN_CHARACTERS = 300
"""Of an error's body, for the message that ends a run."""


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One request and its answer; filled in while bytes come.

    All times are of one clock, in seconds.

    Attributes:
        kind: of the script.
        due_s: when it was to be sent; latencies count from here.
        sent_s: when it was sent.
        status_s: when the status line came; None: it never did.
        token_times_s: when each event with something of the model's came.
        ended_s: when the last byte came, or when it failed.
        status: of HTTP.
        retry_after_s: how long the service asks to stay away.
        failure: empty: it went well; else ``http 429``, ``connect``, ``timeout``, ``cut`` (the
            stream ended before the answer did), ``stream`` (an error within it) or ``form``.
        detail: what the service said to a failure.
        answer: text of it.
        prompt_tokens, cached_tokens: as the service counted them.
        completion_tokens: likewise; events of the answer if it does not say.
    """

    kind: str
    due_s: float
    sent_s: float = 0.0
    status_s: float | None = None
    token_times_s: array[float] = field(default_factory=lambda: array("d"))
    ended_s: float = 0.0
    status: int = 0
    retry_after_s: float = 0.0
    failure: str = ""
    detail: str = ""
    answer: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    _splitter: EventSplitter = field(default_factory=EventSplitter)
    _error_body: bytes = b""
    _is_whole: bool = False

    def fail(self, failure: str, detail: str = "") -> None:
        """Note what went wrong; the first failure counts."""
        if not self.failure:
            self.failure, self.detail = failure, detail[:_SHOWN_CHARACTERS]

    def begin(self, status: int, now_s: float) -> None:
        """The status line and the headers came."""
        self.status, self.status_s = status, now_s

    def add(self, piece: bytes, now_s: float) -> None:
        """Bytes of the body came."""
        if self.status != 200:
            self._error_body += piece[:_SHOWN_CHARACTERS]
            return
        for data in self._splitter.feed(piece):
            if data == _DONE:
                self._is_whole = True
                continue
            try:
                self._read(decode(data), now_s)
            except msgspec.DecodeError as error:
                self.fail("form", f"{error}: {data[:80]!r}")

    def end(self, now_s: float) -> None:
        """The response is over."""
        self.ended_s = now_s
        self.completion_tokens = self.completion_tokens or len(self.token_times_s)
        if self.status != 200:
            self.fail(f"http {self.status}", self._error_body.decode("utf-8", "replace"))
        elif not self._is_whole:
            self.fail("cut", "the stream ended before the answer did")

    def _read(self, chunk: Chunk, now_s: float) -> None:
        if chunk.error:
            self.fail("stream", str(chunk.error))
        if chunk.has_tokens:
            self.token_times_s.append(now_s)
            self.answer += chunk.content
        if chunk.is_last:
            self._is_whole = True
        if chunk.usage is not None:
            self.prompt_tokens = chunk.usage.prompt_tokens
            self.cached_tokens = chunk.usage.cached_tokens
            self.completion_tokens = chunk.usage.completion_tokens

    @property
    def queue_s(self) -> float | None:
        """Until the status line, which a service may hold back until a request is started."""
        return None if self.status_s is None else self.status_s - self.due_s

    @property
    def first_token_s(self) -> float | None:
        """Until the first event with something of the model's."""
        return self.token_times_s[0] - self.due_s if self.token_times_s else None

    @property
    def gaps_s(self) -> list[float]:
        """Between two such events."""
        times = self.token_times_s
        return [later - earlier for earlier, later in pairwise(times)]

    @property
    def total_s(self) -> float:
        """Until the last byte."""
        return self.ended_s - self.due_s

    @property
    def speed(self) -> float | None:
        """Tokens a second that its user saw behind the first event; None for one event or token."""
        if len(self.token_times_s) < 2 or self.completion_tokens < 2:
            return None
        elapsed_s = self.token_times_s[-1] - self.token_times_s[0]
        return (self.completion_tokens - 1) / elapsed_s if elapsed_s > 0 else None
