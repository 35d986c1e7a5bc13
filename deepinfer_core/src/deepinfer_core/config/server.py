"""How does the server listen, whom does it let in, and how much may each of them ask for?

The classes are the schema of the section ``server``; ``docs/server.md`` explains the limits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from deepinfer_core.config.components import Section
from deepinfer_core.interfaces.kv_store import check_word

__all__ = ["LONGEST_WAIT_S", "Names", "ServerSettings", "one_or_many"]

LONGEST_WAIT_S = 86_400.0
"""A day: whoever waits longer has mistyped, and clocks overflow at large values."""

_WORD = re.compile(r"[a-z][a-z0-9_]*")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+")


def one_or_many(value: object) -> object:
    """A lone text stands for a list with commas, the form in which environments hold lists."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(one_or_many)]


def _some(value: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if value == ():
        raise ValueError("expected at least one protocol, or none for every installed one")
    return value


def _origins(value: tuple[str, ...]) -> tuple[str, ...]:
    for origin in value:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise ValueError(f'{origin!r} is no origin such as "https://example.org"')
    return value


def _pairs(value: tuple[str, ...]) -> tuple[str, ...]:
    labels = [pair.partition(":")[0] for pair in value]
    for pair in value:
        label, _, retention = pair.partition(":")
        if not label or labels.count(label) > 1:
            raise ValueError(f"{pair!r} has no label, or one that another pair has")
        check_word("class", retention)
    return value


def _by_vendor(value: object) -> object:
    """Tables of vendors with tables of protocols; a name with a dot is the two of them."""
    if not isinstance(value, Mapping):
        return value
    for vendor, protocols in value.items():
        if not _WORD.fullmatch(str(vendor)):
            raise ValueError(
                f"{vendor!r} is no vendor; write [server.protocol_options.VENDOR.NAME], unquoted"
            )
        if not isinstance(protocols, Mapping):
            raise ValueError(f"{vendor!r} has no table of protocols")
        for name, options in protocols.items():
            if not isinstance(options, Mapping):
                raise ValueError(f"{vendor}.{name} has no table of options")
    return value


class ServerSettings(Section):
    """The HTTP server.

    Attributes:
        host: address to listen on; without keys it must be one of this machine alone.
        port: port to listen on; 0 takes a free one.
        protocols: protocols to serve; None serves every installed one.
        protocol_options: options of each protocol, in a table of its own.
        model_names: names under which the model is served, the first one stands in answers; empty:
            the name of the distribution that ships the checkpoint, or of its folder.
        keys_file: file with a line ``label:key`` for each key; None: no such file.
        key_environment: name of an environment variable with such pairs, with blanks between them.
        key_retention: pairs ``label:class``: requests that come with this key belong to this class
            of traffic, others to ``agent``; see ``engine.kv_store.classes``.
        metrics_auth: ask for a key at ``/metrics`` too, if there are keys.
        cors_origins: origins whose pages may call the server, ``*`` for all; empty: pages of this
            server only.
        max_connections: open connections; more are closed at once.
        max_header_bytes: request line and headers of one request.
        max_body_bytes: body of one request.
        max_bodies_bytes: bodies from 256 KiB on, of all requests in work together.
        header_timeout_s: from the first byte of a request, or from the connection, to the end of
            its headers.
        body_timeout_s: between two pieces of a body; all of it may take ten times as long.
        write_timeout_s: for which a client may leave what was sent to it unread.
        idle_timeout_s: for which a connection without a request is kept.
        keep_alive_s: a stream in which nothing else was sent for so long gets a sign of life.
        max_per_key: answers to one key in work, waiting ones included; None: no limit.
        rate_per_key: answers that one key may ask for in a minute; None: no limit.
        queue_timeout_s: a request that has not been started by then fails.
        request_timeout_s: a request that has not ended by then fails; None: no limit.
        drain_seconds: for which running requests may go on after the order to stop.
    """

    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8000, ge=0, le=65_535)
    protocols: Annotated[Names, AfterValidator(_some)] | None = None
    protocol_options: Annotated[
        dict[str, dict[str, dict[str, Any]]], BeforeValidator(_by_vendor)
    ] = Field(default_factory=dict)
    model_names: Names = ()
    keys_file: str | None = Field(default=None, min_length=1)
    key_environment: str | None = Field(default=None, min_length=1)
    key_retention: Annotated[Names, AfterValidator(_pairs)] = ()
    metrics_auth: bool = True
    cors_origins: Annotated[Names, AfterValidator(_origins)] = ()
    max_connections: int = Field(default=4096, ge=1)
    max_header_bytes: int = Field(default=64 << 10, ge=1 << 10, le=1 << 20)
    max_body_bytes: int = Field(default=48 << 20, ge=1 << 10, le=1 << 30)
    max_bodies_bytes: int = Field(default=1 << 30, ge=1 << 20)
    header_timeout_s: float = Field(default=15.0, gt=0, le=LONGEST_WAIT_S)
    body_timeout_s: float = Field(default=60.0, gt=0, le=LONGEST_WAIT_S)
    write_timeout_s: float = Field(default=60.0, gt=0, le=LONGEST_WAIT_S)
    idle_timeout_s: float = Field(default=75.0, gt=0, le=LONGEST_WAIT_S)
    keep_alive_s: float = Field(default=10.0, gt=0, le=LONGEST_WAIT_S)
    max_per_key: int | None = Field(default=None, ge=1)
    rate_per_key: int | None = Field(default=None, ge=1, le=1_000_000)
    queue_timeout_s: float = Field(default=600.0, gt=0, le=LONGEST_WAIT_S)
    request_timeout_s: float | None = Field(default=None, gt=0, le=LONGEST_WAIT_S)
    drain_seconds: float = Field(default=30.0, ge=0, le=LONGEST_WAIT_S)

    def retention_of(self, label: str) -> str | None:
        """Class of traffic of a key's requests; None: nothing is said about it."""
        return dict(pair.split(":") for pair in self.key_retention).get(label)

    def options_of(self, protocol: str) -> Mapping[str, Any]:
        """Options of a protocol as they were given.

        Args:
            protocol: ``vendor.name``.
        """
        vendor, _, name = protocol.partition(".")
        return self.protocol_options.get(vendor, {}).get(name, {})
