"""How many calls each operation gets, and what is written down of them."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from recorded_tests import figures_in, pytest_addoption

__all__ = ["figures", "pytest_addoption"]

settings.register_profile("short", max_examples=20)
settings.register_profile("full", max_examples=500)
settings.load_profile("short")

figures = figures_in("schemas.json", "nox -s schemas -- --hypothesis-profile full --record")
