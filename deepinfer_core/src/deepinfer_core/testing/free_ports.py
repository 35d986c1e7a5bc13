"""Where on this machine can a test listen?"""

import socket

__all__ = ["free_addresses"]


def free_addresses(count: int) -> list[str]:
    """So many different ``127.0.0.1:port`` that nobody listens at now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return addresses
