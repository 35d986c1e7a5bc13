"""Is a store left alone after failures, and tried again?"""

from deepinfer_core.stores.breaker import Breaker


def failing(times: int) -> Breaker:
    breaker = Breaker()
    for second in range(times):
        assert breaker.let(second)
        breaker.failed(second)
    return breaker


def test_it_opens_with_the_fifth_failure_in_a_row() -> None:
    assert failing(4).let(4.0)
    assert not failing(5).let(4.5)


def test_a_success_ends_the_row() -> None:
    breaker = failing(4)
    breaker.succeeded()
    for _ in range(4):
        breaker.failed(5.0)
    assert breaker.let(5.0)


def test_one_call_in_two_seconds_tries_an_open_one() -> None:
    breaker = failing(5)  # the last one at 4.0
    assert not breaker.would_let(5.99)
    assert breaker.would_let(6.0)
    assert breaker.let(6.0)
    assert not breaker.let(6.0)
    assert not breaker.let(7.99)
    assert breaker.let(8.0)


def test_a_probe_that_fails_keeps_it_open_and_one_that_succeeds_closes_it() -> None:
    breaker = failing(5)
    assert breaker.let(6.0)
    breaker.failed(7.0)
    assert not breaker.let(8.99)
    assert breaker.let(9.0)
    breaker.succeeded()
    assert not breaker.is_open
    assert breaker.let(9.0)
    assert breaker.let(9.0)


def test_it_opens_at_once_where_there_is_reason_to() -> None:
    breaker = Breaker()
    breaker.trip(1.0)
    assert breaker.is_open
    assert not breaker.let(2.99)
    assert breaker.let(3.0)
