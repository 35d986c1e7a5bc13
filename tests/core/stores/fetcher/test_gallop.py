"""Is the length of what is there found in few questions, and never underestimated?"""

import math

import pytest
from deepinfer_core.interfaces.kv_store import Outcome
from deepinfer_core.stores.fetcher.gallop import FAN_OUT, Match, match
from hypothesis import example, given
from hypothesis import strategies as st

HIT, MISS = Outcome(status="hit"), Outcome(status="miss")


class Asked:
    """A store that counts what it is asked."""

    def __init__(self, present: list[bool]) -> None:
        self.present, self.questions = present, 0
        self.seen: set[int] = set()

    def __call__(self, keys: list[bytes]) -> list[Outcome]:
        places = [int.from_bytes(one, "little") for one in keys]
        assert self.seen.isdisjoint(places)
        assert places == sorted(places)
        self.questions += 1
        self.seen.update(places)
        return [HIT if self.present[one] else MISS for one in places]


def searched(present: list[bool], expected: int = 0) -> tuple[Match, Asked]:
    asked = Asked(present)
    keys = [place.to_bytes(4, "little") for place in range(len(present))]
    return match(asked, keys, expected=expected), asked


def leading(present: list[bool]) -> int:
    """The same by looking at every block."""
    return next((place for place, one in enumerate(present) if not one), len(present))


def most_probes(count: int) -> tuple[int, int]:
    """Probes and questions: powers of two, then a sixteenth of what was open each time.

    The first question leaves less than half the chain open, a further one of `n` blocks at most
    `ceil((n - 15) / 16)`.
    """
    if count <= FAN_OUT:
        return count, 1
    left, questions, probes = count // 2, 1, count.bit_length() + 1
    while left:
        questions += 1
        probes += min(FAN_OUT, left)
        left = math.ceil((left - FAN_OUT) / (FAN_OUT + 1)) if left > FAN_OUT else 0
    return probes, questions


@given(st.lists(st.booleans(), max_size=700), st.integers(-3, 702))
def test_the_answer_ends_at_a_block_that_is_not_there_and_not_before_the_first(
    present: list[bool], expected: int
) -> None:
    found, asked = searched(present, expected)
    assert found.blocks >= leading(present)
    assert found.blocks == len(present) or not present[found.blocks]
    assert all(present[one] for one in asked.seen if one < found.blocks)
    assert found.probes == len(asked.seen)
    assert expected > 0 or found.probes <= most_probes(len(present))[0]


@given(st.integers(0, 9000), st.integers(0, 9000))
@example(602, 602)
@example(602, 601)
@example(8192, 0)
@example(8192, 8191)
def test_a_chain_without_holes_is_measured_exactly(count: int, there: int) -> None:
    found, asked = searched([place < there for place in range(count)])
    assert found == Match(min(there, count), "", len(asked.seen))
    probes, questions = most_probes(count)
    assert len(asked.seen) <= probes
    assert asked.questions <= questions


@pytest.mark.parametrize(("count", "questions", "probes"), [(602, 3, 41), (8192, 4, 59)])
def test_usual_chains_take_so_many_probes_at_most(count: int, questions: int, probes: int) -> None:
    found = [
        searched([place < there for place in range(count)])[1]
        for there in {*range(0, count, 7), count}
    ]
    assert max(len(one.seen) for one in found) <= probes
    assert max(one.questions for one in found) <= questions


@given(st.integers(1, 9000), st.data())
def test_one_question_confirms_what_is_expected(count: int, data: st.DataObject) -> None:
    there = data.draw(st.integers(1, count))
    found, asked = searched([place < there for place in range(count)], there)
    assert found == Match(there, "", 1 if there == count else 2)
    assert asked.questions == 1


@given(st.integers(1, 9000), st.data())
@example(8192, None)
def test_what_is_not_as_expected_takes_a_question_more_at_most(
    count: int, data: st.DataObject | None
) -> None:
    there = data.draw(st.integers(0, count)) if data else 1
    expected = data.draw(st.integers(1, count + 1)) if data else 8191
    found, asked = searched([place < there for place in range(count)], expected)
    assert found.blocks == there
    # A question of 15 leaves a sixteenth, so after the first one of two there are as many as
    # digits of what was left open to the base of 16.
    questions, left = 1, count
    while left:
        questions, left = questions + 1, left // (FAN_OUT + 1)
    assert asked.questions <= questions
    assert found.probes <= 2 + FAN_OUT * (questions - 1)


def test_what_is_not_known_in_time_is_not_there() -> None:
    late = Outcome(status="timeout")
    answers = [[HIT, HIT, HIT, HIT, *[late] * 9]]
    found = match(lambda keys: (answers.pop() + [late] * 9)[: len(keys)], [b""] * 602)
    assert found.blocks == 8  # blocks 1, 2, 4 and 8 are there
    assert found.reason == "timeout"


def test_of_an_empty_chain_nothing_is_asked() -> None:
    assert searched([])[0] == Match(0, "", 0)
