"""Which seed does a test use? One made from its own name, and from a number that the user chooses.

So neither the order of tests nor the choice among them changes anybody's data. As a pytest plugin
(``pytest -p deepinfer_core.testing.seeds``, or named in ``pytest_plugins``) it adds the option
``--data-seed N``: the same tests with other numbers. Without it, or with 0, a test has the same
data every time.
"""

from __future__ import annotations

import argparse
import zlib

import pytest

__all__ = ["seed_of"]


def seed_of(request: pytest.FixtureRequest) -> int:
    """The checksum of the test's name with its parameters, begun at the user's number."""
    name: str = request.node.name
    # Two numbers that begin the checksum of one text never end in the same one.
    return zlib.crc32(name.encode(), request.config.getoption("data_seed", default=0))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption(
        "--data-seed",
        type=_number,
        default=0,
        metavar="N",
        help="other random data for every test that draws some; 0 to 4294967295, 0 by default",
    )


def _number(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < 2**32:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to 4294967295")
    return number
