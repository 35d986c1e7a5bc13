"""What do members of a pool say to each other?

A member that calls another one greets, is challenged, proves that it knows the secret, and has it
proved; then it asks, one question at a time. Proofs are HMAC-SHA256 over who speaks, whom it calls
and both sides' random numbers, so that none can be used again or elsewhere.
"""

from __future__ import annotations

import hmac
from typing import Any

import msgspec

from deepinfer_core.channel.language import Language

__all__ = [
    "CALLING",
    "NONCE_BYTES",
    "Announce",
    "Answer",
    "Challenge",
    "Done",
    "Drop",
    "Heard",
    "Locate",
    "Located",
    "Proof",
    "Pull",
    "Pulled",
    "Refused",
    "Welcome",
    "Withdraw",
    "proof",
]

NONCE_BYTES = 32
_REVISION = 1
"""Raised with each change of a message: machines of one pool are not upgraded all at once."""
_MAX_BYTES = 64 << 20


class _Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base of all messages."""


class Proof(_Message, frozen=True):
    """The caller knows the secret. ``member``: its name; ``nonce``: its own random number."""

    member: str
    nonce: bytes
    mac: bytes


class Announce(_Message, frozen=True):
    """The caller has blocks, and says so again before so many seconds have passed."""

    group: str
    keys: list[bytes]
    seconds: float


class Withdraw(_Message, frozen=True):
    """A member has not got blocks: it was asked for them."""

    group: str
    keys: list[bytes]
    owner: str


class Locate(_Message, frozen=True):
    """Who has these blocks?"""

    group: str
    keys: list[bytes]


class Pull(_Message, frozen=True):
    """Give me these blocks."""

    group: str
    keys: list[bytes]


class Drop(_Message, frozen=True):
    """Remove what you have of a namespace, or of all; the caller asks every member."""

    namespace: bytes | None


Heard = Proof | Announce | Withdraw | Locate | Pull | Drop


class Challenge(_Message, frozen=True):
    """Prove that you know the secret, with this random number."""

    nonce: bytes


class Welcome(_Message, frozen=True):
    """So does the member that was called."""

    mac: bytes


class Refused(_Message, frozen=True):
    """The proof is wrong, or the call makes no sense here."""

    reason: str


class Done(_Message, frozen=True):
    """What was asked is done. ``count``: blocks that were removed by a drop."""

    count: int = 0


class Located(_Message, frozen=True):
    """For each key the members that have it."""

    owners: list[list[str]]


class Pulled(_Message, frozen=True):
    """For each key its record; empty: it is not here."""

    records: list[bytes]


Answer = Challenge | Welcome | Refused | Done | Located | Pulled

CALLING: Language[Any, Any] = Language(
    name="deepinfer peers",
    revision=_REVISION,
    version="",
    says=Heard,
    hears=Answer,
    max_bytes=_MAX_BYTES,
)


def proof(secret: bytes, speaker: str, listener: str, nonce: bytes, other: bytes) -> bytes:
    """Proof of a speaker to a listener that it knows the secret.

    Args:
        secret: of all members.
        speaker: name of the one that proves it.
        listener: name of the other one.
        nonce: random number of the listener.
        other: random number of the speaker.
    """
    fields = (speaker.encode(), listener.encode(), nonce, other)
    framed = b"".join(len(field).to_bytes(8, "little") + field for field in fields)
    return hmac.digest(secret, framed, "sha256")
