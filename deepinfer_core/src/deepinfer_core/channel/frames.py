"""Where does a message begin and end in a stream of bytes?

A frame is a length of four bytes, lowest first, and so many bytes behind it. Whoever receives names
the largest frame that it takes, so that a damaged length makes it neither wait nor ask for memory
for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from deepinfer_core.errors import EngineError

__all__ = ["HEADER_BYTES", "ChannelBroken", "FrameReader", "finish_frame"]

_LENGTH = Struct("<I")
HEADER_BYTES = _LENGTH.size
"""Bytes in front of the message."""


class ChannelBroken(EngineError):
    """The other side sent what it may not send; nothing more can be understood."""

    code = "channel_broken"


def finish_frame(frame: bytearray) -> None:
    """Write the length into a frame whose first ``HEADER_BYTES`` were left for it."""
    _LENGTH.pack_into(frame, 0, len(frame) - HEADER_BYTES)


class FrameReader:
    """Puts frames together from pieces of any size.

    Args:
        max_bytes: of a message.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pending = bytearray()

    @property
    def is_between(self) -> bool:
        """Whether no frame has begun that did not end."""
        return not self._pending

    def feed(self, piece: bytes) -> Iterator[memoryview]:
        """The messages that a piece completes; each is valid until the next one is asked for.

        Raises:
            ChannelBroken: a frame is larger than allowed; those before it were given.
        """
        self._pending += piece
        start, view = 0, memoryview(self._pending)
        try:
            while (begin := start + HEADER_BYTES) <= len(view):
                (size,) = _LENGTH.unpack_from(view, start)
                if size > self._max_bytes:
                    raise ChannelBroken(
                        f"a message of {size:,} bytes came, and at most {self._max_bytes:,} may"
                    )
                if begin + size > len(view):
                    break
                start = begin + size
                with view[begin:start] as message:
                    yield message
        finally:
            view.release()
            del self._pending[:start]
