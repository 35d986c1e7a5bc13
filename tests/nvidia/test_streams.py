"""In which order does a stream launch, record and wait? Seen by a stand-in for torch's own."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from deepinfer_core.errors import DeviceError, EngineError
from deepinfer_nvidia.device.streams import CudaStream


class Log(list[str]):
    """What happened, in order; stands for a stream, and makes events."""

    fails: Exception | None = None

    def synchronize(self) -> None:
        self.append("wait for the stream")
        if self.fails:
            raise self.fails

    def event(self) -> "Event":
        return Event(self)


class Event:
    def __init__(self, log: Log) -> None:
        self._log = log

    def record(self, stream: object) -> None:
        assert stream is self._log
        self._log.append("record")

    def synchronize(self) -> None:
        self._log.append("wait for the event")
        if self._log.fails:
            raise self._log.fails

    def query(self) -> bool:
        if self._log.fails:
            raise self._log.fails
        return "reached" in self._log


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()

    @contextmanager
    def current(stream: object) -> Iterator[None]:
        assert stream is log
        log.append("enter")
        yield
        log.append("leave")

    monkeypatch.setattr(torch.cuda, "Event", log.event)
    monkeypatch.setattr(torch.cuda, "stream", current)
    return log


def stream_of(log: Log) -> CudaStream:
    return CudaStream(log)  # type: ignore[arg-type]


def test_work_is_launched_at_once_with_its_stream_current_and_an_event_behind_it(log: Log) -> None:
    stream_of(log).submit(lambda: log.append("work"))
    assert log == ["enter", "work", "record", "leave"]


def test_waiting_waits_for_the_event_and_for_nothing_else(log: Log) -> None:
    stream = stream_of(log)
    first = stream.submit(lambda: None)
    stream.submit(lambda: None)
    del log[:]
    first.wait()
    assert log == ["wait for the event"]


def test_what_launching_raised_is_raised_by_every_wait(log: Log) -> None:
    def fail() -> None:
        raise KeyError("broken on purpose")

    broken = stream_of(log).submit(fail)
    assert log == ["enter", "record", "leave"]
    for _ in range(2):
        with pytest.raises(KeyError, match="broken on purpose"):
            broken.wait()


def test_a_device_that_fails_is_named_once_and_for_all(log: Log) -> None:
    end = stream_of(log).submit(lambda: None)
    log.fails = RuntimeError("CUDA error: an illegal memory access was encountered\nmore")
    for _ in range(2):
        with pytest.raises(DeviceError, match="an illegal memory access was encountered") as raised:
            end.wait()
        assert raised.value.__cause__ is log.fails
        assert "more" not in str(raised.value)
    assert log.count("wait for the event") == 1


def test_draining_and_closing_wait_for_the_stream_and_survive_a_device_that_failed(
    log: Log,
) -> None:
    stream = stream_of(log)
    stream.drain()
    log.fails = RuntimeError("gone")
    stream.close()
    stream.close()
    assert log == ["wait for the stream"] * 2
    with pytest.raises(EngineError, match="closed"):
        stream.submit(lambda: None)


def test_an_event_is_done_when_the_device_has_come_to_it(log: Log) -> None:
    event = stream_of(log).submit(lambda: None)
    assert not event.is_done
    log.append("reached")
    assert event.is_done
    assert "wait for the event" not in log


def test_an_event_of_a_device_that_failed_is_done_and_raises(log: Log) -> None:
    event = stream_of(log).submit(lambda: None)
    log.fails = RuntimeError("an illegal memory access")
    assert event.is_done
    with pytest.raises(DeviceError, match="illegal memory access"):
        event.wait()
