"""What may the two sides say, and do both mean the same by it?

Each side greets first. A greeting names the language, its revision and the version of the
distribution: a process that was started after an upgrade may be another program than the one that
started it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from deepinfer_core.channel.frames import HEADER_BYTES, ChannelBroken, finish_frame

__all__ = ["Language", "MessageTooLarge", "Said"]

Heard = TypeVar("Heard")
Said = TypeVar("Said")


class MessageTooLarge(ValueError):
    """A message is larger than the other side takes; nothing was sent."""


class _Greeting(msgspec.Struct, frozen=True):
    language: str
    revision: int
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Language(Generic[Said, Heard]):
    """What one side says and hears; the other side's has both the other way round.

    Attributes:
        name: of the language.
        revision: raised with each change of what is said.
        version: of the distribution.
        says, hears: types of the messages: tagged ``msgspec`` structs, or a union of them.
        max_bytes: of a message.
    """

    name: str
    revision: int
    version: str
    says: Any
    hears: Any
    max_bytes: int = 256 << 20
    _encoder: msgspec.msgpack.Encoder = field(
        init=False, repr=False, compare=False, default_factory=msgspec.msgpack.Encoder
    )
    _decoder: msgspec.msgpack.Decoder[Heard] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Make the decoder once; it holds what ``msgspec`` found out about the types."""
        object.__setattr__(self, "_decoder", msgspec.msgpack.Decoder(self.hears))

    def reversed(self) -> Language[Heard, Said]:
        """That of the other side."""
        return Language(
            name=self.name,
            revision=self.revision,
            version=self.version,
            says=self.hears,
            hears=self.says,
            max_bytes=self.max_bytes,
        )

    def pack(self, message: Said) -> bytearray:
        """The frame of a message.

        Raises:
            MessageTooLarge: it is larger than the other side takes.
            TypeError: it holds what cannot be sent.
        """
        return self._framed(message)

    def unpack(self, data: memoryview) -> Heard:
        """The message of a frame.

        Raises:
            ChannelBroken: it is none of this language.
        """
        try:
            return self._decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise ChannelBroken(f"a message came that cannot be read: {error}") from error

    def greeting(self) -> bytearray:
        """The frame that each side sends first."""
        return self._framed(self._own_greeting())

    def check_greeting(self, data: memoryview) -> None:
        """Compare the other side's greeting with one's own.

        Raises:
            ChannelBroken: it is none, or that of another language, revision or version.
        """
        try:
            found = msgspec.msgpack.decode(data, type=_Greeting)
        except (msgspec.MsgspecError, ValueError) as error:
            raise ChannelBroken(f"the other side did not greet: {error}") from error
        own = self._own_greeting()
        if found != own:
            raise ChannelBroken(
                f"the other side speaks {_shown(found)}, and this one {_shown(own)}",
                hint="restart the service: what is installed has changed since it was started",
            )

    def _own_greeting(self) -> _Greeting:
        return _Greeting(self.name, self.revision, self.version)

    def _framed(self, message: object) -> bytearray:
        frame = bytearray(HEADER_BYTES)
        self._encoder.encode_into(message, frame, HEADER_BYTES)
        if len(frame) - HEADER_BYTES > self.max_bytes:
            raise MessageTooLarge(
                f"a message has {len(frame) - HEADER_BYTES:,} bytes, and may have"
                f" {self.max_bytes:,}"
            )
        finish_frame(frame)
        return frame


def _shown(greeting: _Greeting) -> str:
    return f"{greeting.language} revision {greeting.revision} of {greeting.version}"
