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
        with pytest.raises(Refused, match="as many as may be") as caught, limits.taken("a"):
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
