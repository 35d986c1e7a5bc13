"""Do users and visitors come when they should?"""

import asyncio
import time
from itertools import pairwise

import pytest

pytest.importorskip("msgspec", reason="pip install 'deepinfer-core[bench]' runs these")

from deepinfer_core.bench.serve.exchange import Exchange
from deepinfer_core.bench.serve.loads import Level, arrival_times, run_closed, run_open
from deepinfer_core.bench.serve.scripts import Script


def scripts(count: int) -> list[Script]:
    turns = (({"role": "user", "content": ""},),)
    return [Script(name=str(number), kind="", turns=turns) for number in range(count)]


class Visits:
    """Notes who is there; a visit lasts until every other one had its turn."""

    def __init__(self, failures: dict[str, float] | None = None) -> None:
        self.names: list[str] = []
        self.dues_s: list[float] = []
        self.now = self.most = 0
        self.failures = failures or {}

    async def __call__(self, script: Script, due_s: float) -> list[Exchange]:
        self.names.append(script.name)
        self.dues_s.append(due_s)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        found = Exchange(kind="", due_s=due_s)
        if script.name in self.failures:
            found.fail("http 429")
            found.retry_after_s = self.failures[script.name]
        return [found]


@pytest.mark.parametrize(("count", "users", "most"), [(1, 1, 1), (5, 1, 1), (5, 3, 3), (2, 3, 2)])
def test_so_many_users_ask_at_once_and_every_script_once(count: int, users: int, most: int) -> None:
    visits = Visits()
    found = asyncio.run(run_closed(scripts(count), users, visits))
    assert len(found) == count
    assert sorted(visits.names) == [str(number) for number in range(count)]
    assert visits.most == most


def test_a_user_who_was_refused_stays_away_as_long_as_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("deepinfer_core.bench.serve.loads.asyncio.sleep", sleep)
    # Asked for 2 s; not asked for anything; asked for longer than a user has patience.
    asyncio.run(run_closed(scripts(4), 1, Visits({"0": 2.0, "1": 0.0, "2": 60.0})))
    assert [pause for pause in pauses if pause] == [2.0, 0.1, 5.0]


def test_arrivals_are_a_poisson_process_of_the_seed() -> None:
    times_s = arrival_times(10_001, 4.0, 1)
    gaps_s = [later - earlier for earlier, later in pairwise(times_s)]
    assert times_s[0] == 0.0
    assert min(gaps_s) >= 0.0
    # The mean of 10,000 gaps of mean and deviation 1/4 lies within 4 of its own deviations, 1 %.
    assert sum(gaps_s) / len(gaps_s) == pytest.approx(0.25, rel=0.04)
    # A share of exp(-1) of exponential gaps is longer than the mean; deviation 0.5 %.
    assert sum(gap > 0.25 for gap in gaps_s) / len(gaps_s) == pytest.approx(0.368, abs=0.02)
    assert arrival_times(10_001, 4.0, 1) == times_s
    assert arrival_times(2, 4.0, 2) != times_s[:2]


def test_visitors_do_not_wait_for_each_other_and_are_due_at_their_times() -> None:
    visits = Visits()
    began_s = time.perf_counter()
    found = asyncio.run(run_open(scripts(20), 2000.0, 3, visits))
    after_s = [due_s - visits.dues_s[0] for due_s in visits.dues_s]
    # Sums of clock readings of some hundred thousand seconds, rounded to 1e-10 s at worst.
    assert after_s == pytest.approx(arrival_times(20, 2000.0, 3), abs=1e-9)
    assert len(found) == 20
    assert visits.dues_s[0] >= began_s


@pytest.mark.parametrize(
    ("level", "text"),
    [(Level(kind="closed", value=8), "users=8"), (Level(kind="open", value=0.5), "rate=0.5")],
)
def test_a_level_is_named_by_its_kind(level: Level, text: str) -> None:
    assert level.text == text
