"""Is anything wrong or left behind when a fetcher, or its engine, is killed at any moment?"""

from pathlib import Path

import pytest
from deepinfer_core.testing.fetcher_kills import FetcherKills, kill_engine
from deepinfer_core.testing.seeds import seed_of

ROUNDS = 4
"""``benchmarks/fetcher_faults.py`` has 200."""


def test_a_fetcher_can_be_killed_at_any_moment(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kills = FetcherKills(tmp_path / "store", seed_of(request))
    for _ in range(ROUNDS):
        kills.round()
    kills.prove()
    kills.close()
    assert kills.report.kills >= ROUNDS
    assert kills.report.kept == kills.blocks


@pytest.mark.parametrize("after_s", [0.0, 0.2])
def test_a_fetcher_ends_with_its_engine(tmp_path: Path, after_s: float) -> None:
    kill_engine(tmp_path / "store", 1, after_s)
