"""Does every prefix end once, in time, and is it counted?"""

import math

from deepinfer_core.stores.fetcher.messages import Known
from deepinfer_core.stores.fetcher.tickets import Tickets
from deepinfer_core.stores.traffic import Wanted

WANTED = Wanted(
    keys=(b"a" * 32, b"b" * 32),
    retention="chat",
    group="blocks",
    state_group=None,
    match_s=0.5,
    fetch_s=2.0,
    has=1,
    expected=2,
)


def test_deadlines_are_told_as_points_in_time() -> None:
    seek = Tickets().open(WANTED, 100.0)
    assert (seek.has, seek.expected) == (1, 2)
    assert (seek.keys, seek.match_by_s, seek.fetch_by_s) == (b"a" * 32 + b"b" * 32, 100.5, 102.0)


def test_one_of_which_nothing_is_heard_is_overdue_behind_each_deadline() -> None:
    tickets = Tickets()
    number = tickets.open(WANTED, 100.0).ticket
    assert tickets.next_overdue_s() == 100.75
    assert tickets.overdue(100.74) == []
    assert tickets.overdue(100.75) == [number]
    tickets.known(Known(number, 2, 4), 100.6)
    assert tickets.overdue(100.75) == []
    assert tickets.overdue(102.25) == [number]
    assert tickets.close(number, "timeout", 102.25)
    assert tickets.next_overdue_s() == math.inf


def test_one_ends_once() -> None:
    tickets = Tickets()
    number = tickets.open(WANTED, 100.0).ticket
    assert tickets.is_open(number)
    assert tickets.close(number, "done", 101.0)
    assert not tickets.close(number, "lost", 101.0)
    assert not tickets.known(Known(number, 2, 4), 101.0)
    assert tickets.tally.counts().ended == {"done": 1}


def test_only_a_matching_that_was_late_is_a_match_timeout() -> None:
    tickets = Tickets()
    first, second, third = (tickets.open(WANTED, 100.0).ticket for _ in range(3))
    tickets.close(first, "timeout", 101.0)
    tickets.known(Known(second, 2, 4), 100.1)
    tickets.close(second, "timeout", 103.0)
    tickets.close(third, "miss", 100.2)
    assert tickets.tally.counts().match_timeouts == 1
    assert tickets.tally.counts().ended == {"timeout": 2, "miss": 1}


def test_times_are_summed() -> None:
    tickets = Tickets()
    for _ in range(2):
        number = tickets.open(WANTED, 100.0).ticket
        tickets.known(Known(number, 2, 4), 100.25)
        tickets.close(number, "done", 101.0)
    tickets.close(tickets.open(WANTED, 100.0).ticket, "timeout", 100.5)
    counts = tickets.tally.counts()
    assert (counts.match_s, counts.fetch_s, counts.probes) == (1.0, 1.5, 8)
