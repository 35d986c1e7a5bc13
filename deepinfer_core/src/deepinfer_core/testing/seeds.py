"""Which seed does a test use? One made from its own name.

So neither the order of tests nor the choice among them changes anybody's data.
"""

import zlib

import pytest

__all__ = ["seed_of"]


def seed_of(request: pytest.FixtureRequest) -> int:
    """The checksum of the test's name with its parameters."""
    name: str = request.node.name
    return zlib.crc32(name.encode())
