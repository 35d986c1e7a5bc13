"""Priority is a head start: it moves requests forward, and starves nobody."""

import heapq
from dataclasses import dataclass

import pytest
from deepinfer_core.schedule.rank import Rank, rank_of
from hypothesis import given
from hypothesis import strategies as st

BOOST_S = 10.0
LONGEST_SERVICE_S = 7


def test_equal_priorities_rank_by_arrival_then_by_number() -> None:
    assert rank_of(1.0, 0, 9, BOOST_S) < rank_of(2.0, 0, 3, BOOST_S) < rank_of(2.0, 0, 4, BOOST_S)


@pytest.mark.parametrize(("later_s", "is_before"), [(9, True), (10, False), (11, False)])
def test_a_step_of_priority_is_worth_one_head_start(later_s: int, is_before: bool) -> None:
    usual, urgent = rank_of(0.0, 0, 1, BOOST_S), rank_of(float(later_s), 1, 2, BOOST_S)
    assert (urgent < usual) == is_before


def test_a_negative_priority_gives_way() -> None:
    assert rank_of(9.0, 0, 2, BOOST_S) < rank_of(0.0, -1, 1, BOOST_S)


def test_without_a_head_start_priorities_mean_nothing() -> None:
    assert rank_of(0.0, -5, 1, 0.0) < rank_of(1.0, 5, 2, 0.0)


@pytest.mark.parametrize(
    ("arrival_s", "boost_s"),
    [(float("nan"), 1.0), (float("inf"), 1.0), (0.0, float("inf")), (0.0, -1.0)],
)
def test_a_rank_needs_finite_times(arrival_s: float, boost_s: float) -> None:
    with pytest.raises(ValueError, match="finite arrival"):
        rank_of(arrival_s, 1, 1, boost_s)


@dataclass(frozen=True)
class Customer:
    arrival_s: int
    priority: int
    service_s: int


def starts(customers: list[Customer], ranks: list[Rank], seats: int) -> list[int]:
    """When each is served, if free seats always go to the first in rank of those present."""
    found: dict[int, int] = {}
    free_at = [0] * seats
    now_s = 0
    coming = sorted(range(len(customers)), key=lambda i: customers[i].arrival_s)
    present: list[tuple[Rank, int]] = []
    while coming or present:
        now_s = max(now_s, min(free_at))
        if not present:
            now_s = max(now_s, customers[coming[0]].arrival_s)
        while coming and customers[coming[0]].arrival_s <= now_s:
            heapq.heappush(present, (ranks[coming[0]], coming.pop(0)))
        _, chosen = heapq.heappop(present)
        found[chosen] = now_s
        free_at[free_at.index(min(free_at))] = now_s + customers[chosen].service_s
    return [found[i] for i in range(len(customers))]


@given(
    customers=st.lists(
        st.builds(
            Customer,
            arrival_s=st.integers(0, 60),
            priority=st.integers(-1, 2),
            service_s=st.integers(1, LONGEST_SERVICE_S),
        ),
        min_size=1,
        max_size=30,
    ),
    seats=st.integers(1, 4),
)
def test_nobody_waits_longer_than_the_bound(customers: list[Customer], seats: int) -> None:
    ranks = [rank_of(float(c.arrival_s), c.priority, i, BOOST_S) for i, c in enumerate(customers)]
    begun = starts(customers, ranks, seats)
    for one, begun_s in zip(customers, begun, strict=True):
        window_ends_s = one.arrival_s + (2 - one.priority) * BOOST_S
        before = sum(
            other.arrival_s <= window_ends_s and other_begun_s > one.arrival_s
            for other, other_begun_s in zip(customers, begun, strict=True)
            if other is not one
        )
        assert begun_s - one.arrival_s <= (before + seats) * LONGEST_SERVICE_S / seats
        for other, other_begun_s in zip(customers, begun, strict=True):
            if other.arrival_s > window_ends_s:
                assert other_begun_s >= begun_s
