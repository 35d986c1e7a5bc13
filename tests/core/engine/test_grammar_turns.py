"""Does a grammar wait in proportion to what it takes itself, whatever stands before it?

The policy is asked about made-up states, and drives a simulation: jobs that need so much time, any
number of processes, and a clock that jumps from one event to the next.
"""

import itertools
from dataclasses import dataclass, field

import pytest
from deepinfer_core.engine.grammar_turns import (
    FIRST_TURN_S,
    SLOW_TURNS,
    Decision,
    JobView,
    Snapshot,
    decide,
    makes_room,
    turns_had,
)
from hypothesis import given
from hypothesis import strategies as st

SLOW_S = sum(FIRST_TURN_S * 2**turn for turn in range(SLOW_TURNS))


def waiting(number: int, *, caller: str = "a", turns: int = 0) -> JobView:
    return JobView(number=number, callers=(caller,), turns=turns)


def running(
    number: int, since_s: float, *, caller: str = "a", turns: int = 0, stops: bool = False
) -> JobView:
    return JobView(
        number=number, callers=(caller,), turns=turns, since_s=since_s, is_stopping=stops
    )


def decided(
    *jobs: JobView,
    now_s: float = 0.0,
    free: int = 0,
    processes: int = 2,
    last_turns: dict[str, int] | None = None,
) -> Decision:
    return decide(
        Snapshot(
            now_s=now_s, jobs=jobs, free=free, processes=processes, last_turns=last_turns or {}
        )
    )


@dataclass
class Work:
    """A grammar of the simulation: what it needs, and what became of it."""

    needs_s: float
    arrives_s: float = 0.0
    caller: str = "a"
    turns: int = 0
    since_s: float | None = None
    done_s: float | None = None


@dataclass
class Simulation:
    """Runs work until all that can end has; giving way takes no time."""

    work: list[Work]
    processes: int = 2
    now_s: float = 0.0
    last_turns: dict[str, int] = field(default_factory=dict)

    def run(self, until_s: float) -> list[float | None]:
        while self.now_s <= until_s:
            for one in self.work:
                if one.since_s is not None and one.since_s + one.needs_s <= self.now_s:
                    one.done_s, one.since_s = self.now_s, None
            self._decide()
            self.now_s = min(self._next_s(), until_s + 1)
        return [one.done_s for one in self.work]

    def _views(self) -> list[JobView]:
        return [
            JobView(number=number, callers=(one.caller,), turns=one.turns, since_s=one.since_s)
            for number, one in enumerate(self.work)
            if one.arrives_s <= self.now_s and one.done_s is None
        ]

    def _decide(self) -> None:
        for _ in range(2 * len(self.work) + 2):
            views = self._views()
            busy = sum(view.since_s is not None for view in views)
            made = decide(
                Snapshot(
                    now_s=self.now_s,
                    jobs=views,
                    free=self.processes - busy,
                    processes=self.processes,
                    last_turns=self.last_turns,
                )
            )
            assert len(made.start) <= self.processes - busy
            self.again_s = made.again_s
            for number in made.start:
                self.work[number].since_s = self.now_s
                turn = 1 + max(self.last_turns.values(), default=0)
                self.last_turns[self.work[number].caller] = turn
            for number in made.stop:
                one = self.work[number]
                view = next(view for view in views if view.number == number)
                one.turns, one.since_s = turns_had(view, self.now_s), None
            if not made.stop:
                return
        raise AssertionError("it comes to no decision")

    def _next_s(self) -> float:
        events = [one.arrives_s for one in self.work if one.arrives_s > self.now_s]
        events += [one.since_s + one.needs_s for one in self.work if one.since_s is not None]
        # A little later: a sum of times need not be as large as its parts say.
        events += [] if self.again_s is None else [self.again_s + 1e-9]
        return min((event for event in events if event > self.now_s), default=float("inf"))


def test_a_lone_grammar_begins_at_once_and_is_left_alone() -> None:
    assert decided(waiting(1), free=2) == Decision(start=(1,))
    assert decided(running(1, 0.0), now_s=100.0, free=1) == Decision()


@pytest.mark.parametrize("heap", [1, 6, 20])
@pytest.mark.parametrize("needs_s", [0.02, 0.09, 0.3])
def test_a_quick_one_waits_as_long_as_it_takes_for_each_before_it(
    heap: int, needs_s: float
) -> None:
    """Turns before its own are at most twice as long as it, and their sum twice that."""
    slow = [Work(needs_s=1000.0) for _ in range(heap)]
    *_, done_s = Simulation([*slow, Work(needs_s=needs_s)]).run(100.0)
    assert done_s is not None
    longest_turn_s = max(FIRST_TURN_S, 2 * needs_s)
    assert done_s <= 2 * longest_turn_s * (heap + 1)


def test_a_quick_one_finds_a_process_free_of_slow_ones_at_once() -> None:
    late = Work(needs_s=0.05, arrives_s=50.0)
    *_, done_s = Simulation([*(Work(needs_s=1000.0) for _ in range(6)), late]).run(100.0)
    assert done_s == pytest.approx(50.05)


def test_slow_ones_have_all_processes_but_one() -> None:
    slow = [waiting(number, turns=SLOW_TURNS) for number in range(4)]
    assert decided(*slow, free=4, processes=4).start == (0, 1, 2)
    assert decided(*slow, waiting(9), free=4, processes=4).start == (9, 0, 1, 2)
    assert decided(*slow, waiting(8), waiting(9), free=4, processes=4).start == (8, 0, 1, 2)


def test_what_is_not_slow_may_have_all_processes() -> None:
    new = [waiting(number) for number in range(4)]
    assert decided(*new, free=3, processes=3).start == (0, 1, 2)
    tried = [waiting(number, turns=SLOW_TURNS - 1) for number in range(4)]
    assert decided(*tried, free=3, processes=3).start == (0, 1, 2)


def test_slow_ones_are_not_kept_out_by_a_stream_of_quick_ones() -> None:
    stream = [Work(needs_s=0.09, arrives_s=0.05 * n, caller="b") for n in range(1000)]
    slow_s, *rest = Simulation([Work(needs_s=3.0), *stream]).run(60.0)
    assert slow_s is not None
    assert slow_s < SLOW_S + 3.0 + 1.0
    assert sum(one is not None for one in rest) > 500


def test_a_lone_process_is_given_to_a_slow_one_until_another_comes() -> None:
    slow = waiting(1, turns=SLOW_TURNS)
    assert decided(slow, free=1, processes=1).start == (1,)
    has_it = running(1, 0.0, turns=SLOW_TURNS)
    assert decided(has_it, waiting(2), now_s=0.2, processes=1).stop == (1,)


def test_only_who_had_a_turn_gives_way_and_only_if_somebody_waits() -> None:
    first, second = running(1, 0.0), running(2, 0.0)
    end_s = FIRST_TURN_S
    assert decided(first, second, waiting(3), now_s=end_s - 0.001).stop == ()
    assert decided(first, second, waiting(3), now_s=end_s).stop == (2,)
    assert decided(first, second, now_s=end_s).stop == ()
    assert decided(first, second, waiting(3), now_s=0.0).again_s == end_s


def test_the_one_that_began_last_gives_way_because_it_loses_least() -> None:
    both = running(1, 0.0, turns=SLOW_TURNS), running(2, 5.0, turns=SLOW_TURNS)
    assert decided(*both, waiting(3), now_s=9.0).stop == (2,)


def test_a_slow_one_in_its_place_does_not_give_way_to_a_quick_one() -> None:
    slow, quick = running(1, 0.0, turns=SLOW_TURNS), running(2, 8.99)
    assert decided(slow, quick, waiting(3), now_s=9.0).stop == ()


def test_nobody_gives_way_for_whom_a_process_comes_free_anyway() -> None:
    stopping, other = running(1, 0.0, stops=True), running(2, 0.0)
    one, another = waiting(3, turns=1), waiting(4, turns=1)
    assert decided(stopping, other, one, now_s=1.0).stop == ()
    assert decided(stopping, other, one, another, now_s=1.0).stop == (2,)
    both = running(1, 0.0, stops=True), running(5, 0.0, stops=True)
    assert decided(*both, other, one, another, now_s=1.0, processes=3).stop == ()


def test_slow_ones_take_turns_of_doubled_length_among_each_other() -> None:
    first, second = Work(needs_s=2.0), Work(needs_s=1000.0)
    done_s, _ = Simulation([second, first]).run(30.0)[::-1]
    assert done_s is not None
    assert done_s <= 2 * 2 * 2 * 2.0  # two of them, turns up to twice as long, and those before


def test_callers_take_turns() -> None:
    many = [waiting(number, caller="a") for number in range(5)]
    jobs = [running(0, 0.0, caller="a"), *many[1:], waiting(9, caller="b")]
    assert decided(*jobs, free=1).start == (9,)
    jobs = [*many, waiting(9, caller="b")]
    assert decided(*jobs, free=2, processes=3).start == (0, 9)
    assert decided(*jobs, free=1, last_turns={"a": 3, "b": 2}).start == (9,)
    assert decided(*jobs, free=1, last_turns={"a": 2, "b": 3}).start == (0,)


def test_a_grammar_that_several_want_goes_by_the_best_of_them() -> None:
    both = JobView(number=7, callers=("a", "b"))
    jobs = [running(0, 0.0, caller="a"), waiting(1, caller="a"), both]
    assert decided(*jobs, free=1).start == (7,)


def test_who_had_fewer_turns_goes_first_whoever_it_is_for() -> None:
    jobs = [waiting(1, turns=2), waiting(2, turns=1), waiting(3, turns=2, caller="b")]
    assert decided(*jobs, free=2, processes=3, last_turns={"a": 9}).start == (2, 3)
    assert decided(*jobs, free=1, processes=3, last_turns={"a": 9}).start == (2,)


def test_of_one_caller_the_oldest_goes_first() -> None:
    assert decided(*(waiting(n) for n in (3, 4, 5)), free=2).start == (3, 4)


def test_a_turn_that_was_not_enough_is_followed_by_a_longer_one() -> None:
    for turns, elapsed_s in itertools.product(range(5), (0.0, 0.05, 0.1, 0.79, 0.8, 33.0)):
        had = turns_had(running(1, 0.0, turns=turns), elapsed_s)
        assert had >= turns
        assert FIRST_TURN_S * 2**had > elapsed_s
        assert had == turns or FIRST_TURN_S * 2 ** (had - 1) <= elapsed_s
    assert turns_had(waiting(1, turns=4), 1e9) == 4


def test_room_is_made_by_the_caller_with_the_most() -> None:
    jobs = [waiting(1, caller="b"), *(waiting(n, caller="a") for n in (2, 3, 4))]
    assert makes_room(jobs, "b") == 4
    assert makes_room(jobs, "c") == 4
    assert makes_room(jobs, "a") is None
    assert makes_room(jobs[:2], "c") is None
    assert makes_room([running(1, 0.0)], "a") is None
    shared = JobView(number=9, callers=("a", "b"))
    assert makes_room([*jobs, shared], "c") == 4


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.integers(0, 6),
            st.one_of(st.none(), st.floats(0, 20)),
            st.booleans(),
        ),
        max_size=12,
    ),
    st.integers(1, 4),
)
def test_every_decision_can_be_carried_out(
    drawn: list[tuple[str, int, float | None, bool]], processes: int
) -> None:
    jobs, busy = [], 0
    for number, (caller, turns, since_s, stops) in enumerate(drawn):
        runs = since_s is not None and busy < processes
        busy += runs
        jobs.append(
            JobView(
                number=number,
                callers=(caller,),
                turns=turns,
                since_s=since_s if runs else None,
                is_stopping=stops and runs,
            )
        )
    made = decided(*jobs, now_s=20.0, free=processes - busy, processes=processes)
    by_number = {job.number: job for job in jobs}
    assert len(set(made.start)) == len(made.start) <= processes - busy
    assert all(by_number[number].since_s is None for number in made.start)
    assert len(set(made.stop)) == len(made.stop)
    for number in made.stop:
        job = by_number[number]
        assert job.since_s is not None
        assert not job.is_stopping
        # Somebody who waits has had fewer turns.
        had = turns_had(job, 20.0)
        assert any(one.since_s is None and one.turns < had for one in jobs)
    if processes - busy and any(job.since_s is None and job.turns < SLOW_TURNS for job in jobs):
        assert made.start
