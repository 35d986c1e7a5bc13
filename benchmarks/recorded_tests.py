"""How do tests that count, and measure no time, leave a record?

A ``conftest.py`` takes over ``pytest_addoption`` and a fixture made by ``figures_in``. What its
tests put into that list is written at the end: under ``benchmarks/results`` with ``--record``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from record import write

Figures = list[dict[str, object]]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Know ``--record``."""
    parser.addoption("--record", action="store_true", help="what was counted is a record")


def figures_in(file_name: str, command: str) -> Callable[..., Any]:
    """A fixture for a session: the list of its figures.

    Args:
        file_name: of the record.
        command: that makes it.
    """

    @pytest.fixture(scope="session")
    def figures(request: pytest.FixtureRequest) -> Iterator[Figures]:
        found: Figures = []
        yield found
        named = [one | {"command": command} for one in found]
        write(file_name, named, is_record=request.config.getoption("record"))

    return figures
