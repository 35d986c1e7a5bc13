"""How do tokens become text while they arrive, and where does a stop string end it?

Bytes of tokens are joined, decoded and searched as they come. Text that may still become part of a
stop string, and bytes of an unfinished character, are held back; so what was given out never has to
be taken back, and the result does not depend on how the text was split into tokens.
"""

from __future__ import annotations

import codecs

__all__ = ["TextStream"]


class TextStream:
    """The text of one request.

    Args:
        stop_strings: texts that end it.
        include_stop: keep the stop string in the text.

    Attributes:
        stopped: a stop string was met; nothing is accepted any more.
    """

    def __init__(self, stop_strings: tuple[str, ...] = (), *, include_stop: bool = False) -> None:
        self.stopped = False
        self._stops = stop_strings
        self._include_stop = include_stop
        self._is_between = True
        """No character is unfinished."""
        # Malformed bytes become U+FFFD as soon as it is clear that they are malformed.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._given: list[str] = []
        self._ready = ""
        self._held = ""

    @property
    def text(self) -> str:
        """All text so far, without what is held back."""
        return "".join(self._given) + self._ready

    def push(self, piece: bytes, *, searched: bool = True) -> None:
        """Append the bytes of one token.

        Args:
            piece: may end within a character, and may be empty.
            searched: look for stop strings; text that is not searched cannot begin one.
        """
        if self._is_between:
            # Nearly every token ends with a character: no decoder is needed to remember a part.
            try:
                text = piece.decode()
            except UnicodeDecodeError:
                text = self._decode_part(piece)
        else:
            text = self._decode_part(piece)
        if self._stops:
            self._append(text, searched)
        else:
            self._ready += text

    def end(self) -> None:
        """Let go what is held back; an unfinished character becomes U+FFFD."""
        if not self.stopped:
            self._append(self._decoder.decode(b"", final=True), searched=True)
            self._ready += self._held
            self._held = ""

    def take(self) -> str:
        """New text since the last call."""
        new, self._ready = self._ready, ""
        self._given.append(new)
        return new

    def _decode_part(self, piece: bytes) -> str:
        text = self._decoder.decode(piece)
        self._is_between = not self._decoder.getstate()[0]
        return text

    def _append(self, text: str, searched: bool) -> None:
        if self.stopped:
            return
        if not searched:
            self._ready += self._held + text
            self._held = ""
            return
        pending = self._held + text
        found = self._first_stop(pending)
        if found is not None:
            start, end = found
            self._ready += pending[: end if self._include_stop else start]
            self._held = ""
            self.stopped = True
            return
        keep = self._kept_length(pending)
        self._ready += pending[: len(pending) - keep]
        self._held = pending[len(pending) - keep :]

    def _first_stop(self, pending: str) -> tuple[int, int] | None:
        """The stop string that ends first, of several the longest.

        Reading one character at a time would find the same.
        """
        spans = [(pending.find(stop), stop) for stop in self._stops]
        found = [(start + len(stop), start) for start, stop in spans if start >= 0]
        if not found:
            return None
        end, start = min(found)
        return start, end

    def _kept_length(self, pending: str) -> int:
        """Length of the longest end of the text that begins a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(pending)), 0, -1):
            tail = pending[len(pending) - length :]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
