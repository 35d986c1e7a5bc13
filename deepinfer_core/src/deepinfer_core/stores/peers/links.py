"""How does a member ask the others, without waiting for the dead?

Connections are kept. A member that failed a few times in a row is not asked but for a try every
other second, so that it costs nobody time.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from deepinfer_core.channel.frames import ChannelBroken
from deepinfer_core.stores.breaker import Breaker
from deepinfer_core.stores.peers.messages import (
    CALLING,
    NONCE_BYTES,
    Challenge,
    Heard,
    Proof,
    Refused,
    Welcome,
    proof,
)
from deepinfer_core.stores.peers.wire import Wire, host_and_port

__all__ = ["Links", "Unreachable"]

_MOST_IDLE = 8
"""Connections to one member that wait for the next call."""


class Unreachable(Exception):
    """A member gave no answer; the message says why."""


class _Link:
    """What is known of one member. Whoever reads or changes it holds the lock."""

    def __init__(self) -> None:
        self.breaker = Breaker(most_failures=2)
        self.idle: list[Wire] = []
        self.problem = ""


class Links:
    """Calls to other members; used from several threads.

    Args:
        name: of this member.
        others: names of the others.
        secret: of all.
    """

    def __init__(self, name: str, others: Sequence[str], secret: bytes) -> None:
        self._name, self._secret = name, secret
        self._links = {other: _Link() for other in others}
        self._lock = threading.Lock()
        self._is_closed = False

    def problems(self) -> dict[str, str]:
        """Why members cannot be reached, by name."""
        with self._lock:
            return {name: link.problem for name, link in self._links.items() if link.problem}

    def call(self, member: str, message: Heard, deadline_s: float) -> Any:
        """Ask a member something.

        Raises:
            Unreachable: it did not answer before the deadline, or refused.
        """
        link = self._links.get(member)
        if link is None:
            raise Unreachable(f"{member} is no member")
        with self._lock:
            if self._is_closed or not link.breaker.let(time.monotonic()):
                raise Unreachable(link.problem or "closed")
            wire = link.idle.pop() if link.idle else None
        try:
            answer = self._ask(member, wire, message, deadline_s)
        except (OSError, ChannelBroken, Unreachable) as error:
            with self._lock:
                link.problem = f"{member}: {error}"
                link.breaker.failed(time.monotonic())
            raise Unreachable(link.problem) from error
        wire, heard = answer
        with self._lock:
            link.problem = ""
            link.breaker.succeeded()
            if not self._is_closed and len(link.idle) < _MOST_IDLE:
                link.idle.append(wire)
                wire = None
        if wire is not None:
            wire.close()
        if isinstance(heard, Refused):
            raise Unreachable(f"{member}: {heard.reason}")
        return heard

    def close(self) -> None:
        """Close what is not in use; calls that run close theirs."""
        with self._lock:
            self._is_closed = True
            idle = [wire for link in self._links.values() for wire in link.idle]
            for link in self._links.values():
                link.idle.clear()
        for wire in idle:
            wire.close()

    def _ask(
        self, member: str, wire: Wire | None, message: Heard, deadline_s: float
    ) -> tuple[Wire, Any]:
        """The answer, and the connection that is free again."""
        if wire is not None:
            try:
                wire.send(message, deadline_s)
                return wire, wire.hear(deadline_s)
            except TimeoutError:
                wire.close()
                raise
            except (OSError, ChannelBroken):
                wire.close()  # the member was started again since: a new connection tells
        wire = self._connected(member, deadline_s)
        try:
            wire.send(message, deadline_s)
            return wire, wire.hear(deadline_s)
        except (OSError, ChannelBroken):
            wire.close()
            raise

    def _connected(self, member: str, deadline_s: float) -> Wire:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the deadline has passed")
        wire = Wire(socket.create_connection(host_and_port(member), timeout=left_s), CALLING)
        try:
            self._prove(wire, member, deadline_s)
        except (OSError, ChannelBroken, Unreachable):
            wire.close()
            raise
        return wire

    def _prove(self, wire: Wire, member: str, deadline_s: float) -> None:
        wire.greet(deadline_s)
        challenge = wire.hear(deadline_s)
        if not isinstance(challenge, Challenge):
            raise ChannelBroken("it does not ask who calls")
        nonce = secrets.token_bytes(NONCE_BYTES)
        mac = proof(self._secret, self._name, member, challenge.nonce, nonce)
        wire.send(Proof(self._name, nonce, mac), deadline_s)
        answer = wire.hear(deadline_s)
        if isinstance(answer, Refused):
            raise Unreachable(answer.reason)
        expected = proof(self._secret, member, self._name, nonce, challenge.nonce)
        if not isinstance(answer, Welcome) or not hmac.compare_digest(answer.mac, expected):
            raise Unreachable("it does not know the secret")
        wire.trust()
