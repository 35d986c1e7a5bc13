"""How is the memory of several machines made from a configuration?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from deepinfer_core.errors import ConfigError
from deepinfer_core.stores.peers.store import PeersStore
from deepinfer_core.stores.peers.wire import host_and_port
from deepinfer_core.stores.retention import LimitsOptions, limits_of

if TYPE_CHECKING:
    from deepinfer_core.plugin import BuildContext

__all__ = ["build"]

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_AGE_STEP_S = 1e-6
"""Of a text's states the deepest one is wanted next, so of two none counts as equally old."""


class PeersOptions(LimitsOptions, Protocol):
    """What the configuration says; see ``config.store_options``."""

    @property
    def name(self) -> str:
        """How the others reach this member."""

    @property
    def members(self) -> Sequence[str]:
        """All of them."""

    @property
    def secret_file(self) -> str:
        """File with the secret."""

    @property
    def listen(self) -> str:
        """Where to bind."""

    @property
    def call_s(self) -> float:
        """Patience with one member."""

    @property
    def beat_s(self) -> float:
        """Between announcements."""


def build(options: PeersOptions, context: BuildContext) -> PeersStore:
    """Build the component.

    Raises:
        ConfigError: a name is no address, this member is not among them, the secret cannot be read
            or is too short to be one, or there is none and machines are named.
    """
    _check_names(options)
    return PeersStore(
        limits_of(options, age_step_s=_AGE_STEP_S, refresh_ratio=0.0),
        name=options.name,
        members=options.members,
        secret=_secret(options.secret_file),
        listen=options.listen,
        call_s=options.call_s,
        beat_s=options.beat_s,
    )


def _check_names(options: PeersOptions) -> None:
    if options.name not in options.members:
        raise ConfigError(
            f"core.peers is to be {options.name}, found members {', '.join(options.members)}",
            hint="write the same members on all machines, and as name the one that is this machine",
        )
    for address in (*options.members, *([options.listen] if options.listen else [])):
        try:
            host, _ = host_and_port(address)
        except ValueError as error:
            raise ConfigError(
                f"core.peers asks for addresses of members, {error}",
                hint="write members as host:port",
            ) from error
        if not options.secret_file and host not in _LOOPBACK:
            raise ConfigError(
                f"core.peers would give blocks to whoever reaches {address}: no secret_file",
                hint="write one secret into a file of each machine, and name it in secret_file",
            )


def _secret(file: str) -> bytes:
    """What all members know; empty on loopback, where none is asked for."""
    if not file:
        return b""
    path = Path(file)
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(
            f"core.peers reads its secret from {path}, found {error.strerror or error}",
            hint="write 16 random bytes or more into a file that only its user can read",
        ) from error
    if len(secret) < 16:
        raise ConfigError(
            f"core.peers reads its secret from {path}, found {len(secret)} bytes",
            hint="write 16 random bytes or more, such as from openssl rand -hex 32",
        )
    return secret
