"""Program: compiles kernels that arrive on standard input, one after the other.

A message is its length in eight bytes and a pickle. The first one is the module search path of the
parent; each of the others is a ``WantedKernel`` and is answered with a text: empty when the folder
has the kernel, else the last words of the compiler. Answers travel over a private copy of standard
output, so what compilers print cannot break them.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
from typing import IO, Any

__all__ = ["LENGTH", "last_words", "receive", "send"]

LENGTH = struct.Struct("<Q")
"""How the length of a message is written."""

_LINES = 12
_CHARACTERS = 2000
"""A compiler's verdict stands at the end of what it says."""


def send(channel: IO[bytes], message: bytes) -> None:
    """Write one message."""
    channel.write(LENGTH.pack(len(message)) + message)
    channel.flush()


def receive(channel: IO[bytes]) -> bytes | None:
    """Read one message; None where the other side has gone."""
    head = channel.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    message = channel.read(length)
    return message if len(message) == length else None


def last_words(text: str) -> str:
    """The end of a long text, without empty lines."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-_LINES:])[-_CHARACTERS:]


def _compile(message: bytes) -> str:
    try:
        kernel: Any = pickle.loads(message)
        kernel.compiler.keep(kernel.build, kernel.spec, kernel.tuning)
    except Exception as error:  # noqa: BLE001 - compilers raise many kinds
        return last_words(f"{type(error).__name__}: {error}")
    return ""


def _serve() -> None:
    source = sys.stdin.buffer
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    path = receive(source)
    if path is not None:
        sys.path[:] = pickle.loads(path)
    while (message := receive(source)) is not None:
        send(channel, _compile(message).encode())
    # Threads of compilers must not keep a worker alive that has nothing left to do.
    os._exit(0)


if __name__ == "__main__":
    _serve()
