"""A pair of connected sockets."""

import socket
from collections.abc import Iterator

import pytest


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both are closed after the test."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs
