"""A thread as a device: work in order, errors where they are waited for, a clean end."""

import gc
import multiprocessing
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from itertools import count
from types import FrameType
from typing import Any

import pytest
from deepinfer_core.errors import EngineError
from deepinfer_core.interfaces.device import InlineStream, Stream
from deepinfer_core.reference.device import CpuDevice
from deepinfer_core.reference.worker_stream import WorkerStream


@pytest.fixture(params=["thread", "inline"])
def stream(request: pytest.FixtureRequest) -> Stream:
    return CpuDevice().stream() if request.param == "thread" else InlineStream()


def fail() -> None:
    raise RuntimeError("broken on purpose")


def test_work_is_done_in_order(stream: Stream) -> None:
    done: list[int] = []
    for number in range(100):
        stream.submit(lambda number=number: done.append(number))  # type: ignore[misc]
    stream.drain()
    assert done == list(range(100))
    stream.close()


def test_the_caller_goes_on_while_work_is_under_way() -> None:
    stream, may_go = WorkerStream(), threading.Event()
    event = stream.submit(lambda: may_go.wait(10) and None)
    may_go.set()  # would never be reached if ``submit`` waited
    event.wait()
    stream.close()


def test_an_error_is_raised_wherever_it_is_waited_for_and_stops_nothing(stream: Stream) -> None:
    done: list[str] = []
    broken = stream.submit(fail)
    behind = stream.submit(lambda: done.append("behind"))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="broken on purpose"):
            broken.wait()
    behind.wait()
    stream.drain()
    assert done == ["behind"]
    stream.close()


def test_work_that_asks_the_thread_to_exit_is_an_error_of_the_engine() -> None:
    stream = WorkerStream()
    with pytest.raises(EngineError, match="SystemExit"):
        stream.submit(lambda: sys.exit(3)).wait()
    stream.submit(lambda: None).wait()
    stream.close()


def test_closing_waits_for_the_last_work_and_refuses_more() -> None:
    stream, done = WorkerStream(), []
    stream.submit(lambda: time.sleep(0.05))
    stream.submit(lambda: done.append(1))
    stream.close()
    stream.close()
    assert done == [1]
    with pytest.raises(EngineError, match="closed"):
        stream.submit(lambda: None)


def test_a_stream_that_was_let_go_of_leaves_no_thread() -> None:
    stream = WorkerStream()
    stream.submit(lambda: None).wait()
    [thread] = [one for one in threading.enumerate() if one.name == "deepinfer-stream"]
    del stream
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_done_work_keeps_nothing_alive() -> None:
    class Big:
        pass

    stream, big = WorkerStream(), Big()
    seen = weakref.ref(big)
    event = stream.submit(lambda big=big: None)  # type: ignore[misc]
    event.wait()
    stream.drain()
    del big
    gc.collect()
    assert seen() is None
    stream.close()


def test_a_process_ends_behind_work_that_is_under_way() -> None:
    code = (
        "import torch\n"
        "from deepinfer_core.reference.worker_stream import WorkerStream\n"
        "stream = WorkerStream()\n"
        "a = torch.ones(1500, 1500)\n"
        "def work():\n"
        "    for _ in range(20): a @ a\n"
        "    print('done', flush=True)\n"
        "stream.submit(work)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def interrupted_at(line: int, wait: Callable[[], None]) -> bool:
    """Wait, with an interrupt in front of the so many-th line that runs; whether it came to it."""
    left = line

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if not left:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        wait()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupt_at_any_line_of_a_wait_leaves_the_thread_at_work() -> None:
    for line in count(1):
        stream, goes_on = WorkerStream(), threading.Event()
        came = interrupted_at(line, stream.submit(lambda: time.sleep(0.01)).wait)
        stream.submit(goes_on.set)
        assert goes_on.wait(10), f"after an interrupt at line {line} of the wait nothing runs"
        stream.close()
        if not came:
            break
    assert line > 2


def report_from_a_fork(stream: WorkerStream, event: Any, answers: Any) -> None:
    for ask in (event.wait, lambda: stream.submit(lambda: None)):
        try:
            ask()
        except EngineError as error:
            answers.put(error.message)
    stream.drain()
    stream.close()
    answers.put("closed")


def test_a_forked_process_is_told_that_the_thread_is_elsewhere_and_waits_for_nothing() -> None:
    stream, may_go, context = WorkerStream(), threading.Event(), multiprocessing.get_context("fork")
    event = stream.submit(lambda: may_go.wait(20) and None)
    answers = context.Queue()
    child = context.Process(target=report_from_a_fork, args=(stream, event, answers))
    child.start()
    refused = "this stream belongs to the process that this one was forked from"
    assert [answers.get(timeout=15) for _ in range(3)] == [refused, refused, "closed"]
    child.join(15)
    assert child.exitcode == 0
    may_go.set()
    event.wait()
    stream.close()
