"""How many calls each operation gets, and whether what came of them is a record."""

import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

settings.register_profile("short", max_examples=20)
settings.register_profile("full", max_examples=500)
settings.load_profile("short")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--record``: write into ``benchmarks/results``."""
    parser.addoption("--record", action="store_true", help="the figures are a record")
