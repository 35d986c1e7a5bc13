"""Do all grammars of a step together keep a budget, and who gives way if not?"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from deepinfer_core.engine import grammar_pace
from deepinfer_core.engine.grammar_pace import ALONE_S, EXCESS_S, LEAST_S, MASK_S, SHARE, Pace


class Loop:
    """Steps with a clock that passes when something is done.

    Args:
        monkeypatch: exchanges the clock.
        rest_s: what a step takes without grammars.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rest_s: float) -> None:
        self.now_s, self.rest_s = 0.0, rest_s
        source = SimpleNamespace(perf_counter=lambda: self.now_s, thread_time=lambda: self.now_s)
        monkeypatch.setattr(grammar_pace, "time", source)
        self.pace = Pace()

    def step(self, times_s: Mapping[Any, float], *, has_others: bool = True) -> Any:
        """One step; who fails in it, if anybody does."""
        self.pass_s(self.rest_s)
        with self.pace.timed():
            for one, time_s in times_s.items():
                self.pace.call(one, lambda time_s=time_s: self.pass_s(time_s))  # type: ignore[misc]
        found = self.pace.judge(dict.fromkeys(times_s, 1), has_others=has_others)
        return None if found is None else found[0]

    def pass_s(self, elapsed_s: float) -> None:
        self.now_s += elapsed_s

    def run(self, times_s: dict[Any, float], steps: int) -> list[Any]:
        """Steps without those who failed; who did, in this order."""
        failed = []
        for _ in range(steps):
            one = self.step(times_s)
            if one is not None:
                failed.append(one)
                del times_s[one]
        return failed


def constraint(name: str = "") -> Any:
    class Named(SimpleNamespace):
        __hash__ = object.__hash__

    return Named(excess_s=0.0, name=name)


def test_one_just_below_what_a_lonely_one_may_take_ends_beside_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of a step of 0.02 s, and a usual mask, are free: 0.0365 s of 0.049 are not."""
    loop, one = Loop(monkeypatch, rest_s=0.02), constraint()
    assert loop.run({one: 0.049}, 15) == [one]
    assert Loop(monkeypatch, rest_s=0.02).run({constraint(): 0.049}, 14) == []


def test_alone_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, one = Loop(monkeypatch, rest_s=0.001), constraint()
    assert [loop.step({one: 0.049}, has_others=False) for _ in range(200)] == [None] * 200
    assert one.excess_s == 0


@pytest.mark.parametrize(
    ("rest_s", "budget_s"), [(0.0, LEAST_S), (0.03, SHARE * 0.03), (9.0, ALONE_S)]
)
def test_the_budget_is_a_part_of_the_rest_of_the_step(
    monkeypatch: pytest.MonkeyPatch, rest_s: float, budget_s: float
) -> None:
    """Two take the whole of it for ever; a hundredth more of it adds up in the end."""
    for factor, steps in ((0.99, 300), (1.01, 300)):
        loop, one, two = Loop(monkeypatch, rest_s), constraint(), constraint()
        for _ in range(steps):
            loop.step({one: MASK_S + factor * budget_s / 2, two: MASK_S + factor * budget_s / 2})
        assert (one.excess_s > 0) == (factor > 1)


def test_however_many_there_are_the_others_wait_no_longer_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is far below what one may take alone. The slower ones end, one a step."""
    loop = Loop(monkeypatch, rest_s=0.01)
    times_s = {constraint(str(n)): 0.012 + 0.001 * n for n in range(20)}
    quick = {constraint("quick"): 0.001 for _ in range(20)}
    them = {**quick, **times_s}
    began_s, steps = loop.now_s, 2000
    failed = loop.run(them, steps)
    assert not set(failed) & set(quick)
    assert sum(max(0.0, time_s - MASK_S) for time_s in them.values()) <= SHARE * 0.01 + 1e-9
    # Beside what is free in every step each of them took half a second, and a step or two more.
    most_s = steps * (0.01 + SHARE * 0.01 + 40 * MASK_S) + 20 * (EXCESS_S + 2 * 20 * 0.032)
    assert loop.now_s - began_s < most_s


def test_of_two_equally_slow_ones_one_may_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alone keeps the budget of 0.05 s."""
    loop, one, two = Loop(monkeypatch, rest_s=0.2), constraint("one"), constraint("two")
    assert len(loop.run({one: 0.04, two: 0.04}, 500)) == 1
    assert min(one.excess_s, two.excess_s) == 0


def test_what_was_charged_is_forgotten_as_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, one = Loop(monkeypatch, rest_s=0.02), constraint()
    for _ in range(10):
        loop.step({one: 0.049})
    assert one.excess_s > 0.3
    for _ in range(200):
        loop.step({one: 0.001})
    assert one.excess_s == 0


def test_a_level_cuts_down_the_longest_alone() -> None:
    """0.1 and 0.2 stay; 0.5 and 0.9 become 0.35 each."""
    assert grammar_pace._level([0.9, 0.1, 0.5, 0.2], 1.0) == pytest.approx(0.35)
    assert grammar_pace._level([0.5, 0.5], 1.0) == 0.5
    assert grammar_pace._level([], 1.0) == 0.0
    assert grammar_pace._level([3.0, 3.0, 3.0], 0.3) == pytest.approx(0.1)
