"""Does a request come from where requests may come from?

A page that somebody opens can make its browser call this machine. Without keys that is stopped
here: the host must be this machine by name, which a rebound name is not, and the origin must be the
same name and port: another service of this machine may show pages of anybody. Pages of other
origins are let in by the configuration alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from deepinfer_core.server.refusals import Refused

__all__ = ["Origins"]

_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})
_METHODS = b"GET, POST, DELETE"
_EXPOSED = b"x-request-id, request-id, retry-after"
_ANY = "*"

Headers = list[tuple[bytes, bytes]]


class Origins:
    """Whom browsers may call for.

    Args:
        allowed: origins whose pages may call; ``*``: all.
        host: address that the server listens on.
        checks_host: whether the name of the host must be one of this machine.
    """

    def __init__(self, allowed: tuple[str, ...], host: str, *, checks_host: bool) -> None:
        self._allowed = frozenset(origin.lower() for origin in allowed)
        self._hosts = _THIS_MACHINE | {host.strip("[]").lower()}
        self._checks_host = checks_host

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Let a request in or not.

        Args:
            headers: by names in lower case.

        Raises:
            Refused: 403; its host or origin is a stranger.
        """
        if not self._checks_host:
            return
        host = _text(headers, b"host")
        if _name(f"//{host}") not in self._hosts:
            raise Refused(
                403,
                "host_refused",
                "without keys this server answers to names of its own machine only",
                hint="call localhost or 127.0.0.1, or configure keys",
            )
        origin = _text(headers, b"origin")
        if origin and not self._lets(origin) and not _is_page_of(origin, host):
            raise Refused(
                403,
                "origin_refused",
                "pages of another origin may not call this server",
                hint="name the origin in server.cors_origins",
            )

    def headers(self, headers: Mapping[bytes, bytes]) -> Headers:
        """What a browser must read to hand a response to its page; none without configuration."""
        origin = _text(headers, b"origin")
        if not self._allowed:
            return []
        if not self._lets(origin):
            return [(b"vary", b"origin")]
        return [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"origin"),
        ]

    def preflight(self, headers: Mapping[bytes, bytes]) -> Headers | None:
        """The answer to the question of a browser whether it may call; None: it is not asked."""
        origin = _text(headers, b"origin")
        if b"access-control-request-method" not in headers or not self._lets(origin):
            return None
        asked = headers.get(b"access-control-request-headers", b"")
        return [
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-allow-headers", asked),
            (b"access-control-max-age", b"600"),
        ]

    def _lets(self, origin: str) -> bool:
        return bool(origin) and (_ANY in self._allowed or origin.lower() in self._allowed)


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1").strip()


def _is_page_of(origin: str, host: str) -> bool:
    """Whether a page came from where it calls; browsers leave out the usual port in both."""
    scheme, found, place = origin.lower().partition("://")
    return bool(found) and scheme in ("http", "https") and place == host.lower()


def _name(address: str) -> str:
    """Name of a host; empty if there is none."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""
