"""How does a member of a pool answer the others?

One thread takes connections, one answers each of them. Whoever does not prove in time that it knows
the secret is cut off; whoever asks what makes no sense is told so, and stays.
"""

from __future__ import annotations

import contextlib
import hmac
import math
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence

from deepinfer_core.channel.frames import ChannelBroken
from deepinfer_core.errors import ConfigError
from deepinfer_core.interfaces.kv_store import StoreItem
from deepinfer_core.interfaces.kv_upkeep import BlockFacts
from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.stores.peers.directory import Directory
from deepinfer_core.stores.peers.messages import (
    CALLING,
    NONCE_BYTES,
    Announce,
    Answer,
    Challenge,
    Done,
    Drop,
    Heard,
    Locate,
    Located,
    Proof,
    Pull,
    Pulled,
    Refused,
    Welcome,
    Withdraw,
    proof,
)
from deepinfer_core.stores.peers.wire import Wire, host_and_port
from deepinfer_core.stores.records import pack_record

__all__ = ["Member"]

_PROOF_S = 5.0
"""For a caller to greet and to prove that it knows the secret."""

_ANSWER_S = 5.0
"""To read a block and to send it to a caller that takes it."""

_MOST_CALLERS = 256


class Member:
    """The listening side of one member. Listens when it is made.

    Args:
        name: as the others call it.
        listen: ``host:port`` to bind.
        others: names of all other members; nobody else is let in.
        secret: of all members.
        directory: what it knows as a registrar.
        store: what it has; open.

    Raises:
        ConfigError: it cannot listen there.
    """

    def __init__(
        self,
        *,
        name: str,
        listen: str,
        others: Sequence[str],
        secret: bytes,
        directory: Directory,
        store: MemoryStore,
    ) -> None:
        self._name, self._others, self._secret = name, frozenset(others), secret
        self._directory, self._store = directory, store
        self._lock = threading.Lock()
        self._callers: set[Wire] = set()
        self._threads: set[threading.Thread] = set()
        self._is_open = True
        try:
            self._socket = _listening(listen)
        except OSError as error:
            raise ConfigError(
                f"core.peers is to listen at {listen}, found {error.strerror or error}",
                hint="name a free port of this machine in listen",
            ) from error
        self._start(self._take_callers)

    def close(self) -> None:
        """End all connections and wait for the threads."""
        with self._lock:
            self._is_open = False
            callers, threads = list(self._callers), list(self._threads)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes whoever waits for a caller
        self._socket.close()
        for wire in callers:
            wire.close()
        for thread in threads:
            thread.join()

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name="deepinfer-peers", daemon=True)
        with self._lock:
            if self._is_open:
                self._threads.add(thread)
                thread.start()

    def _take_callers(self) -> None:
        while self._is_open:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                if self._is_open:
                    time.sleep(0.1)  # e.g. no descriptor is free; others give theirs back
                continue
            wire = Wire(connection, CALLING.reversed())
            with self._lock:
                is_welcome = self._is_open and len(self._callers) < _MOST_CALLERS
                if is_welcome:
                    self._callers.add(wire)
            if not is_welcome:
                wire.close()
                continue
            self._start(lambda wire=wire: self._serve(wire))  # type: ignore[misc]

    def _serve(self, wire: Wire) -> None:
        try:
            caller = self._admitted(wire)
            while caller is not None:
                heard = wire.hear(math.inf)
                wire.send(self._answer(caller, heard), time.monotonic() + _ANSWER_S)
        except (OSError, ChannelBroken):
            pass  # the caller has gone, or speaks something else: it may call again
        finally:
            wire.close()
            with self._lock:
                self._callers.discard(wire)
                self._threads.discard(threading.current_thread())

    def _admitted(self, wire: Wire) -> str | None:
        """The caller's name; None: it was sent away."""
        deadline_s = time.monotonic() + _PROOF_S
        wire.greet(deadline_s)
        nonce = secrets.token_bytes(NONCE_BYTES)
        wire.send(Challenge(nonce), deadline_s)
        heard = wire.hear(deadline_s)
        if not isinstance(heard, Proof) or heard.member not in self._others:
            wire.send(Refused(f"no member of the pool of {self._name}"), deadline_s)
            return None
        expected = proof(self._secret, heard.member, self._name, nonce, heard.nonce)
        if len(heard.nonce) != NONCE_BYTES or not hmac.compare_digest(heard.mac, expected):
            wire.send(Refused("another secret"), deadline_s)
            return None
        own = proof(self._secret, self._name, heard.member, heard.nonce, nonce)
        wire.trust()
        wire.send(Welcome(own), deadline_s)
        return heard.member

    def _answer(self, caller: str, heard: Heard) -> Answer:
        now_s = time.monotonic()
        try:
            if isinstance(heard, Announce):
                self._directory.announce(heard.group, heard.keys, caller, now_s + heard.seconds)
                return Done()
            if isinstance(heard, Withdraw):
                self._directory.withdraw(heard.group, heard.keys, heard.owner)
                return Done()
            if isinstance(heard, Locate):
                return Located(self._directory.locate(heard.group, heard.keys, now_s))
            if isinstance(heard, Pull):
                return Pulled(self._records(heard.group, heard.keys))
            if isinstance(heard, Drop):
                return Done(self._store.drop(heard.namespace))
            return Refused("a proof is given once")
        except ValueError as error:  # e.g. a group that is unknown here
            return Refused(str(error))

    def _records(self, group: str, keys: Sequence[bytes]) -> list[bytes]:
        """Blocks with a checksum of now, so that the caller finds what changed on the way."""
        deadline_s = time.monotonic() + _ANSWER_S
        facts = self._store.describe(group, keys, deadline_s=deadline_s)
        known = self._store.groups[group]
        with self._store.borrow(group, keys, deadline_s=deadline_s) as lent:
            return [
                b""
                if fact is None or one.data is None
                else pack_record(known, _item(fact, one.data), time.time())
                for fact, one in zip(facts, lent, strict=True)
            ]


def _item(fact: BlockFacts, data: memoryview) -> StoreItem:
    return StoreItem(
        key=fact.key,
        data=data,
        namespace=fact.namespace,
        depth=fact.depth,
        retention=fact.retention,
    )


def _listening(address: str) -> socket.socket:
    host, port = host_and_port(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=64)
