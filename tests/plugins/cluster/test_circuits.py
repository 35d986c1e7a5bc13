"""Is what failed asked again now and then, by one at a time?"""

from deepinfer_cluster.circuits import Circuits


class Passing:
    """Time that passes when a test says so."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_what_failed_is_tried_by_one_at_a_time_once_it_is_time_to() -> None:
    clock = Passing()
    circuits = Circuits(2.0, clock=clock)
    assert circuits.take_turn("node") is None
    circuits.open("node", "sample")
    assert circuits.is_open("node")
    assert circuits.take_turn("node") is None
    clock.now_s = 2.0
    assert circuits.take_turn("node") == "sample"
    clock.now_s = 9.0
    assert circuits.take_turn("node") is None, "it is being tried"
    circuits.give_turn_back("node")
    assert circuits.take_turn("node") == "sample"


def test_what_failed_again_waits_again_and_with_what_failed_last() -> None:
    clock = Passing()
    circuits = Circuits(2.0, clock=clock)
    circuits.open("node", "first")
    clock.now_s = 2.0
    circuits.take_turn("node")
    circuits.open("node", "second")
    circuits.give_turn_back("node")
    clock.now_s = 3.9
    assert circuits.take_turn("node") is None
    clock.now_s = 4.0
    assert circuits.take_turn("node") == "second"


def test_what_answers_is_forgotten_and_others_are_not() -> None:
    circuits = Circuits(2.0)
    circuits.open("one")
    circuits.open("other")
    circuits.close("one")
    circuits.close("one")
    assert not circuits.is_open("one")
    assert circuits.names() == {"other"}
