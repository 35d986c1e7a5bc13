"""In which order do side streams wait, launch and give back? Seen by stand-ins for torch's own."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from deepinfer_nvidia.device.streams import SideStreams


class Stream:
    """Writes down what it is told, in one list for all."""

    device = torch.device("cuda", 0)

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self._log = name, log

    def wait_stream(self, other: "Stream") -> None:
        self._log.append(f"{self.name} waits for all of {other.name}")

    def record_event(self) -> str:
        self._log.append(f"{self.name} marks its end")
        return f"the end of {self.name}"

    def wait_event(self, event: str) -> None:
        self._log.append(f"{self.name} waits for {event}")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    log: list[str] = []
    current = [Stream("main", log)]

    @contextmanager
    def entered(stream: Stream) -> Iterator[None]:
        current.append(stream)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "stream", entered)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current[-1])
    return log


@pytest.fixture
def sides(log: list[str]) -> SideStreams:
    names = iter("abc")
    return SideStreams(lambda: Stream(next(names), log))  # type: ignore[arg-type, return-value]


def note(log: list[str], word: str) -> int:
    log.append(word)
    return len(word)


def test_work_waits_for_what_was_launched_and_is_waited_for_where_its_result_is_wanted(
    sides: SideStreams, log: list[str]
) -> None:
    result = sides.beside(lambda: note(log, "work"))
    log.append("next")
    assert result() == 4
    assert log == [
        "a waits for all of main",
        "work",
        "a marks its end",
        "next",
        "main waits for the end of a",
    ]


def test_pieces_of_work_that_are_under_way_have_streams_of_their_own(
    sides: SideStreams, log: list[str]
) -> None:
    first, second = (sides.beside(lambda: note(log, "work")) for _ in range(2))
    second()
    third = sides.beside(lambda: note(log, "work"))
    first()
    third()
    assert [line[0] for line in log if "marks" in line] == ["a", "b", "b"]


def test_work_beside_may_have_work_beside_it(sides: SideStreams, log: list[str]) -> None:
    def outer() -> int:
        inner = sides.beside(lambda: note(log, "inner"))
        return inner()

    sides.beside(outer)()
    assert log == [
        "a waits for all of main",
        "b waits for all of a",
        "inner",
        "b marks its end",
        "a waits for the end of b",
        "a marks its end",
        "main waits for the end of a",
    ]
