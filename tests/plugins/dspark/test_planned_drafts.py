"""What a benchmark says of planned drafts: decided where the figures decide, whatever the noise."""

import random
import sys
from collections.abc import Iterator
from itertools import product
from math import exp
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "benchmarks"
SCRIPTS = ("planned_drafts", "planned_turns", "paired_ratios", "record")


@pytest.fixture(scope="module")
def scripts() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        import paired_ratios
        import planned_drafts

        yield SimpleNamespace(drafts=planned_drafts, ratios=paired_ratios)
        for name in SCRIPTS:
            sys.modules.pop(name, None)


def said(scripts: Any, plain: tuple[float, float], fixed: tuple[float, float]) -> dict[str, str]:
    pairs = {"plain": plain, "never": (1.0, 1.0), "fixed": fixed}
    found = {
        name: scripts.ratios.Ratio((low + high) / 2, low, high)
        for name, (low, high) in pairs.items()
    }
    return dict(scripts.drafts.verdict(found))


@pytest.mark.parametrize(
    ("low", "high", "row"),
    [
        (0.99, 1.01, "holds"),
        (0.984, 0.999, "holds"),  # 0.984 * 255 / 256 is more than 0.98
        (0.983, 1.2, "undecided"),  # and 0.983 * 255 / 256 is less
        (0.5, 1.5, "undecided"),
        (0.97, 0.9837, "fails"),
        (0.97, 0.984, "undecided"),
        (0.5, 0.7, "fails"),
    ],
)
@pytest.mark.parametrize("judged", ["plain", "fixed"])
def test_a_row_is_decided_by_the_end_of_an_interval_that_is_nearer_to_the_margin(
    scripts: Any, judged: str, low: float, high: float, row: str
) -> None:
    ends = {"plain": (1.1, 1.2), "fixed": (1.1, 1.2)} | {judged: (low, high)}
    found = said(scripts, **ends)
    assert found["row"] == found[judged] == row


def test_one_way_that_is_faster_lets_a_row_fail_though_the_other_is_undecided(scripts: Any) -> None:
    assert said(scripts, (0.5, 1.5), (0.5, 0.7))["row"] == "fails"
    assert said(scripts, (0.5, 1.5), (1.5, 1.7))["row"] == "undecided"


def test_more_noise_lets_nothing_pass(scripts: Any) -> None:
    """The same estimate: first it holds, then nothing is known; never does a loss hold."""
    assert said(scripts, (0.99, 1.0), (1.1, 1.2))["row"] == "holds"
    assert said(scripts, (0.895, 1.095), (1.1, 1.2))["row"] == "undecided"
    for reach in (0.01, 0.05, 0.2, 0.5):
        assert said(scripts, (0.9 - reach, 0.9 + reach), (1.1, 1.2))["row"] != "holds"


def times(
    faster: float, noise: float, seed: int, count: int = 20
) -> tuple[list[float], list[float]]:
    chance = random.Random(seed)
    one = [exp(chance.gauss(0, noise)) / faster for _ in range(count)]
    return one, [exp(chance.gauss(0, noise)) for _ in range(count)]


def test_the_interval_holds_the_truth_as_often_as_it_says(scripts: Any) -> None:
    outside = 0
    for seed in range(1000):
        found = scripts.ratios.ratio(*times(1.1, 0.1, seed))
        outside += not found.low <= 1.1 <= found.high
    # 99 %: of 1,000 ten are outside on average, and more than 25 once in 100,000 times.
    assert outside <= 25
    assert outside > 0


def test_bursts_move_a_sum_and_not_the_estimate(scripts: Any) -> None:
    one, other = times(1.0, 0.005, seed=1, count=40)
    quiet = scripts.ratios.ratio(one, other)
    burst = [3 * each if place in (4, 5, 11) else each for place, each in enumerate(one)]
    found = scripts.ratios.ratio(burst, other)
    assert found.value == pytest.approx(quiet.value, abs=0.005)
    assert quiet.low - 0.01 < found.low < found.high < quiet.high + 0.01
    assert scripts.drafts.whole(burst, other) < 0.9


@pytest.mark.parametrize("rounds", [8, 9, 10])
def test_ends_are_where_the_signed_rank_test_has_them(scripts: Any, rounds: int) -> None:
    """Counted: of all signs of the ranks, those whose positive ones sum to no more than this."""
    sums = [
        sum(rank for rank, sign in enumerate(signs, start=1) if sign)
        for signs in product((0, 1), repeat=rounds)
    ]
    cut = scripts.ratios.beyond(rounds, 0.005)
    assert fmean(one <= cut for one in sums) <= 0.005 < fmean(one <= cut + 1 for one in sums)


def test_fewer_rounds_than_an_interval_takes_are_refused(scripts: Any) -> None:
    with pytest.raises(ValueError, match="7 rounds, and 8 are needed"):
        scripts.ratios.ratio([1.0] * 7, [1.0] * 7)


class Turning:
    """Every turn takes a second, and a token of some ways and of later parts of texts more."""

    def __init__(self, token_s: dict[str, list[float]]) -> None:
        self.now_s, self.token_s = 0.0, token_s
        self.planner = "planned"

    def turn(self, turns: Any, way: str) -> None:
        self.now_s += 1.0
        found = self.token_s[way]
        turns.token_s.append(found[len(turns.token_s) % len(found)] * 1.5**self.part)
        self.part += 1

    def begin(self, temperature: float) -> None:
        self.part = 0

    def stop(self) -> None:
        pass


def figures(
    scripts: Any, monkeypatch: pytest.MonkeyPatch, **token_s: list[float]
) -> dict[str, dict[str, Any]]:
    drafts = scripts.drafts
    machine = Turning({name: [1.0] for name in drafts.COMPARED} | token_s)
    row = object.__new__(drafts.Row)
    row._machine, row._chance, row._count = machine, random.Random(1), 16
    row._ways = {name: name for name in drafts.COMPARED}
    monkeypatch.setattr(drafts.time, "process_time", lambda: machine.now_s)
    found = row.compared(0.0, drafts.looks(50.0, 800.0))
    return dict(zip(drafts.COMPARED, found, strict=True))


def test_a_row_that_is_decided_ends_at_the_first_look(
    scripts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = figures(scripts, monkeypatch, fixed=[1.5])
    assert found["planned"]["verdict"] == dict.fromkeys(("plain", "never", "fixed", "row"), "holds")
    # 50 turns or more are whole squares of four ways, 32 turns each: two, so 16 of each way.
    assert found["planned"]["rounds"] == 16
    assert found["fixed"]["rounds"] == 16


def test_a_row_that_noise_leaves_open_goes_on_to_the_limit_and_is_called_undecided(
    scripts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy, _ = times(1.0, 0.3, seed=1, count=300)
    found = figures(scripts, monkeypatch, planned=noisy, fixed=[3.0])
    assert found["planned"]["verdict"]["row"] == "undecided"
    assert found["planned"]["verdict"]["fixed"] == "holds"
    # 64 turns are of all four ways, the other 736 or more of squares of three: 41 of 18 turns.
    assert found["fixed"]["rounds"] == 16
    assert found["planned"]["rounds"] == found["plain"]["rounds"] == 16 + 6 * 41


def test_a_way_that_never_drafts_decides_nothing(
    scripts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = figures(scripts, monkeypatch, never=[0.9], fixed=[1.5])
    assert found["planned"]["verdict"]["never"] == "fails"
    assert found["planned"]["verdict"]["row"] == "holds"
    assert found["planned"]["against_never"] == {
        "ratio": 0.9, "between": [0.9, 0.9], "all": 0.9,
    }  # fmt: skip
