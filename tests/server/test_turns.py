"""Whose turn is it?"""

from collections import Counter

from deepinfer_core.server.turns import Ticket, Turns
from hypothesis import given
from hypothesis import strategies as st

Actions = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.sampled_from("abc"), st.sampled_from("xy")),
        st.tuples(st.just("leave"), st.integers(0, 30), st.just("")),
    ),
    max_size=60,
)


class Played:
    """Turns after some actions, with who waits and who has a place."""

    def __init__(self, places: int) -> None:
        self.turns: Turns[Ticket] = Turns(places)
        self.alive: list[Ticket] = []

    def join(self, caller: str, user: str = "") -> Ticket:
        ticket = Ticket(caller, user)
        self.alive.append(ticket)
        self.turns.join(ticket)
        return ticket

    def leave(self, ticket: Ticket) -> None:
        self.alive.remove(ticket)
        self.turns.leave(ticket)

    @property
    def inside(self) -> list[Ticket]:
        return [ticket for ticket in self.alive if ticket.has_place]


def test_without_places_or_without_anybody_it_is_nobodys_turn() -> None:
    played = Played(1)
    assert played.turns.next() is None
    first, second = played.join("a"), played.join("a")
    assert played.turns.next() is first
    assert played.turns.next() is None
    played.leave(first)
    assert played.turns.next() is second


def test_equal_shares_go_to_the_one_whose_turn_is_longest_ago() -> None:
    played = Played(1)
    order = []
    for caller in "aaab":
        played.join(caller)
    while (ticket := played.turns.next()) is not None:
        order.append(ticket.caller)
        played.leave(ticket)
    assert "".join(order) == "abaa"


def test_the_caller_with_the_fewest_is_next_even_if_its_last_turn_was_later() -> None:
    played = Played(4)
    for caller in "aabc":
        played.join(caller)
        played.turns.next()
    played.join("a")
    played.join("b")
    [of_c] = [ticket for ticket in played.inside if ticket.caller == "c"]
    played.leave(of_c)
    ticket = played.turns.next()
    assert ticket is not None
    assert ticket.caller == "b"


def test_users_of_a_caller_share_what_the_caller_has() -> None:
    played = Played(4)
    for caller, user in ["ax", "ax", "ax", "ay", "bz", "bz"]:
        played.join(caller, user)
    order = [played.turns.next() for _ in range(4)]
    assert [(one.caller + one.user) for one in order if one] == ["ax", "bz", "ay", "bz"]


@given(actions=Actions, places=st.integers(0, 4))
def test_each_turn_is_of_a_caller_and_user_with_the_least(
    actions: list[tuple[str, str | int, str]], places: int
) -> None:
    played = Played(places)
    for kind, what, user in actions:
        if kind == "join":
            played.join(str(what), user)
        elif played.alive:
            played.leave(played.alive[int(what) % len(played.alive)])
        while True:
            before = Counter(ticket.caller for ticket in played.inside)
            of_users = Counter((ticket.caller, ticket.user) for ticket in played.inside)
            waiting = played.turns.waiting
            ticket = played.turns.next()
            if ticket is None:
                break
            assert before[ticket.caller] == min(before[one.caller] for one in waiting)
            same = [one for one in waiting if one.caller == ticket.caller]
            least = min(of_users[one.caller, one.user] for one in same)
            assert of_users[ticket.caller, ticket.user] == least
        # A place is free only if nobody waits, and none is given twice.
        assert len(played.inside) <= places
        assert not played.turns.waiting or len(played.inside) == places


@given(callers=st.lists(st.sampled_from("abc"), min_size=1, max_size=30), places=st.integers(1, 3))
def test_nobody_is_passed_over_twice_by_the_same_caller(callers: list[str], places: int) -> None:
    played = Played(places)
    for caller in callers:
        played.join(caller)
    passed: dict[str, Counter[str]] = {caller: Counter() for caller in callers}
    running: list[Ticket] = []
    while played.alive:
        while (ticket := played.turns.next()) is not None:
            running.append(ticket)
            passed[ticket.caller] = Counter()
            for one in {waiting.caller for waiting in played.turns.waiting} - {ticket.caller}:
                passed[one][ticket.caller] += 1
                # First come, first served among equals: with several places a newcomer may see
                # another caller come to an equal share before.
                assert passed[one][ticket.caller] <= 1 + (places > 1)
        played.leave(running.pop(0))


def test_nothing_is_remembered_of_those_who_are_gone() -> None:
    played = Played(1)
    for user in range(100):
        ticket = played.join("a", str(user))
        played.turns.next()
        played.leave(ticket)
    assert not played.turns._groups
