"""How long is waited before an engine is started again."""

from deepinfer_core.channel.restarts import Restarts


def test_waits_double_up_to_the_longest_and_end_after_so_many() -> None:
    restarts = Restarts(first_wait_s=1, longest_wait_s=5, most=5)
    assert [restarts.wait_s(0) for _ in range(7)] == [1, 2, 4, 5, 5, None, None]


def test_an_engine_that_worked_long_enough_ends_the_row() -> None:
    restarts = Restarts(first_wait_s=1, most=2, stable_s=60)
    found = [restarts.wait_s(ready_s) for ready_s in (0, 59.9, 60, 0, 0)]
    assert found == [1, 2, 1, 2, None]
