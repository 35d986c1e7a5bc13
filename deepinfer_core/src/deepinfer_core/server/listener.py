"""At which address does a server listen, and may it?

Without keys only processes of this machine may reach it.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket

from deepinfer_core.config.server import ServerSettings
from deepinfer_core.errors import ConfigError

__all__ = ["address_of", "open_listener"]

_BACKLOG = 2048
"""Connections that may wait to be taken."""


def open_listener(settings: ServerSettings, *, has_keys: bool) -> socket.socket:
    """Bind before anything is loaded, so that a port in use is found at once.

    Args:
        settings: host and port.
        has_keys: whether the server asks for a key.

    Returns:
        A bound socket; whoever serves listens on it.

    Raises:
        ConfigError: the address cannot be had, or may not without keys.
    """
    host, port = settings.host, settings.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"server.host {host} is no address: {error}", hint="e.g. 127.0.0.1, or 0.0.0.0 for all"
        ) from error
    if not has_keys and not all(_is_own(str(place[0])) for *_, place in found):
        raise ConfigError(
            f"server.host is {host}, and no keys are set: everybody could use the server",
            hint="set server.keys_file or server.key_environment, or listen on 127.0.0.1",
        )
    family, *_, place = found[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restart need not wait for connections of the last run to be forgotten.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise _refused(host, port, error) from error
    listener.set_inheritable(False)
    return listener


def address_of(listener: socket.socket) -> str:
    """Where clients find it: ``http://127.0.0.1:8000``."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _is_own(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _refused(host: str, port: int, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"server.port {port} of {host} is in use", hint="stop who uses it, or take another port"
        )
    reason = os.strerror(error.errno) if error.errno else str(error)
    return ConfigError(f"{host} port {port} cannot be listened on: {reason}")
