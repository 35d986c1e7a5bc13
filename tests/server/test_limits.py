"""How much may one key ask for?"""

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from deepinfer_core.server.limits import KeyLimits
from deepinfer_core.server.refusals import Refused
from hypothesis import given
from hypothesis import strategies as st


def enters(limits: KeyLimits, label: str = "a") -> bool:
    try:
        with limits.taken(label):
            return True
    except Refused:
        return False


@pytest.mark.parametrize("most", [1, 2, 3])
def test_so_many_of_a_key_are_in_work_and_one_more_is_refused(most: int) -> None:
    limits = KeyLimits(most, None)
    with ExitStack() as stack:
        for _ in range(most):
            stack.enter_context(limits.taken("a"))
        with pytest.raises(Refused, match=f"of {most} that may be") as caught, limits.taken("a"):
            pass
        assert (caught.value.status, caught.value.code) == (429, "too_many_in_work")
        assert enters(limits, "b")
    assert enters(limits)


def test_one_that_fails_counts_no_longer() -> None:
    limits = KeyLimits(1, None)
    with pytest.raises(KeyError), limits.taken("a"):
        raise KeyError
    assert enters(limits)


def test_a_refusal_says_when_to_come_again() -> None:
    now = 100.0
    limits = KeyLimits(None, 2, lambda: now)
    assert enters(limits)
    now = 110.5
    assert enters(limits)
    with pytest.raises(Refused) as caught, limits.taken("a"):
        pass
    assert caught.value.retry_after_s == 50  # the first one leaves the minute 49.5 s from now
    now = 159.9
    assert not enters(limits)
    now = 160.0
    assert enters(limits)
    assert not enters(limits)
    assert enters(limits, "b")


def test_without_limits_nothing_is_refused() -> None:
    limits = KeyLimits(None, None)
    assert all(enters(limits) for _ in range(1000))


@given(
    pauses=st.lists(st.floats(0, 40), max_size=40),
    most=st.integers(1, 5),
)
def test_no_minute_has_more_than_the_limit_and_no_refusal_is_needless(
    pauses: list[float], most: int
) -> None:
    now = 0.0
    clock: Callable[[], float] = lambda: now  # noqa: E731
    limits = KeyLimits(None, most, clock)
    let_in: list[float] = []
    for pause in pauses:
        now += pause
        recent = sum(moment > now - 60 for moment in let_in)
        assert enters(limits) == (recent < most)
        if recent < most:
            let_in.append(now)


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_a_call_counts_for_every_sequence_that_it_claims(asked: int) -> None:
    limits = KeyLimits(4, None)
    with limits.taken("a") as claim:
        claim.grow(asked)
        with ExitStack() as stack:
            for _ in range(4 - asked):
                stack.enter_context(limits.taken("a"))
            assert not enters(limits)
    with limits.taken("a") as claim:  # all of them were given back
        claim.grow(4)


def test_a_call_that_finds_no_room_for_all_its_sequences_keeps_none() -> None:
    limits = KeyLimits(4, None)
    with limits.taken("b") as other, limits.taken("a") as claim:
        other.grow(4)  # of another key
        claim.grow(2)
        with pytest.raises(Refused) as caught, limits.taken("a") as second:
            second.grow(3)
        assert (caught.value.status, caught.value.code) == (429, "too_many_in_work")
        with limits.taken("a") as second:
            second.grow(2)


@pytest.mark.parametrize(("most", "per_minute"), [(4, None), (None, 4)])
def test_a_call_that_can_never_be_let_in_is_not_told_to_wait(
    most: int | None, per_minute: int | None
) -> None:
    limits = KeyLimits(most, per_minute)
    with pytest.raises(Refused, match="5 sequences") as caught, limits.taken("a") as claim:
        claim.grow(5)
    assert (caught.value.status, caught.value.code) == (400, "too_many_sequences")


def test_a_minute_has_room_when_enough_sequences_have_left_it() -> None:
    now = 0.0
    limits = KeyLimits(None, 5, lambda: now)

    def asks(sequences: int) -> int | None:
        """Seconds to wait; None: it was let in."""
        try:
            with limits.taken("a") as claim:
                claim.grow(sequences)
            return None
        except Refused as refused:
            return refused.retry_after_s

    assert asks(2) is None  # one in the first moment, and one more that was claimed in it
    now = 10.0
    assert asks(3) is None
    now = 20.0
    assert asks(1) == 40
    now = 60.0
    assert asks(3) == 10  # the first of them is let in, and counts
    assert asks(1) is None
    assert asks(1) == 10
