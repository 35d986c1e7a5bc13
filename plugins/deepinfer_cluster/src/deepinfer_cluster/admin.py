"""What does the pool's master tell over HTTP?

It alone knows which names there are, and how full the pool is; the client has no call for either.
Paths and names of figures are those of Mooncake's master (``master_admin_service.cpp``).
"""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from abc import abstractmethod
from dataclasses import dataclass
from http.client import HTTPException
from typing import Protocol

__all__ = ["Admin", "Figures", "HttpAdmin", "NotTold"]

_ALL_NAMES = "/get_all_keys"
_METRICS = "/metrics"

_QUICK_S = 1.0
"""Seconds for figures, which are a few kilobytes."""

_LONG_S = 30.0
"""Seconds for a list of names, 80 bytes each."""


class NotTold(Exception):
    """The master's administration did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How full the pool is.

    Attributes:
        records: objects in it, of everybody.
        used_bytes: that they take.
        capacity_bytes: of all nodes that the master takes for alive.
        evicted: objects that made room for others since the master started.
    """

    records: int
    used_bytes: int
    capacity_bytes: int
    evicted: int


class Admin(Protocol):
    """Asks the master."""

    @abstractmethod
    def names(self) -> list[str]:
        """Names of all objects, of everybody.

        Raises:
            NotTold: it did not answer.
        """

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether the master runs, and takes calls of clients."""

    @abstractmethod
    def figures(self) -> Figures:
        """How full the pool is.

        Raises:
            NotTold: it did not answer, or not with figures.
        """


class HttpAdmin(Admin):
    """Asks over HTTP, past all proxies.

    Args:
        url: without a path.
        master: ``host:port`` on which it is called by clients.
    """

    def __init__(self, url: str, master: str) -> None:
        self._url = url
        host, _, port = master.rpartition(":")
        self._master = host, int(port)
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def names(self) -> list[str]:
        """One a line."""
        return self._get(_ALL_NAMES, _LONG_S).split()

    def is_ready(self) -> bool:
        """One that was stopped takes calls all the same, but answers nothing."""
        try:
            self._get(_METRICS, _QUICK_S)
            with socket.create_connection(self._master, timeout=_QUICK_S):
                return True
        except (NotTold, OSError):
            return False

    def figures(self) -> Figures:
        """From its metrics."""
        found: dict[str, int] = {}
        for line in self._get(_METRICS, _QUICK_S).splitlines():
            name, _, value = line.partition(" ")
            if name.startswith("master_") and value.isdecimal():
                found[name] = int(value)
        try:
            return Figures(
                records=found["master_key_count"],
                used_bytes=found["master_allocated_bytes"],
                capacity_bytes=found["master_total_capacity_bytes"],
                evicted=found["master_evicted_key_count"],
            )
        except KeyError as error:
            raise NotTold(f"{self._url}{_METRICS} does not tell {error}") from error

    def _get(self, path: str, timeout_s: float) -> str:
        try:
            with self._opener.open(self._url + path, timeout=timeout_s) as answer:
                return str(answer.read().decode("utf-8", "replace"))
        except (OSError, HTTPException, urllib.error.URLError) as error:
            raise NotTold(f"{self._url} does not answer: {error}") from error
