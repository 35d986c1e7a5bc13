"""Is a child that dies, hangs or babbles a fact about one task?"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.plugin import children
from deepinfer_core.plugin.children import run_tasks
from deepinfer_core.plugin.context import DeviceFacts

Install = Callable[..., Path]
CHILD = "deepinfer_core.plugin.probe_child"

PROBES = """
    import os, subprocess, sys, time
    from deepinfer_core.plugin import Verdict

    def fine(ctx): return Verdict(True, 7, "runs")
    def abort(ctx): os.abort()
    def leave(ctx): os._exit(0)
    def close(ctx): os.closerange(3, 64); time.sleep(60)
    def hang(ctx): time.sleep(60)
    def chatter(ctx): print("{}" * 10); os.write(1, b"noise"); return fine(ctx)
    def parent(ctx):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        with open(PIDFILE, "w") as file: file.write(str(child.pid))
        os.abort()
"""


def task(name: str) -> dict[str, Any]:
    facts = DeviceFacts(device="cpu").to_json()
    context = {"device": facts, "needs": {}, "versions": {}, "cache_dir": ""}
    return {"probe": f"acme_module:{name}", **context}


@pytest.fixture
def probes(install: Install, tmp_path: Path) -> Path:
    pidfile = tmp_path / "pid"
    install("acme", PROBES.replace("PIDFILE", repr(str(pidfile))), group="some.other")
    return pidfile


@pytest.mark.usefixtures("probes")
def test_no_task_starts_no_child() -> None:
    assert run_tasks("deepinfer_core.plugin.no_such_program", [], 1.0) == []


@pytest.mark.usefixtures("probes")
def test_each_task_gets_its_own_answer_in_order() -> None:
    names = ["fine", "abort", "fine", "leave", "chatter", "fine"]
    outcomes = run_tasks(CHILD, [task(name) for name in names], 30.0)
    assert [item.problem for item in outcomes] == ["", "ended with -6", "", "ended with 0", "", ""]
    assert [item.answer is not None for item in outcomes] == [True, False, True, False, True, True]
    assert all(item.answer["score"] == 7 for item in outcomes if item.answer)


@pytest.mark.usefixtures("probes")
def test_a_silent_task_is_stopped_and_the_next_one_runs() -> None:
    hung, fine = run_tasks(CHILD, [task("hang"), task("fine")], 0.5)
    assert (hung.problem, hung.timed_out) == ("no answer within 0.5 s", True)
    assert fine.answer is not None


@pytest.mark.usefixtures("probes")
def test_a_task_that_closes_its_output_and_stays_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(children, "_EXIT_TIMEOUT_S", 0.1)
    closed, fine = run_tasks(CHILD, [task("close"), task("fine")], 30.0)
    assert (closed.problem, closed.timed_out) == ("ended with no status", False)
    assert fine.answer is not None


def test_what_a_task_started_is_stopped_with_it(probes: Path) -> None:
    [outcome] = run_tasks(CHILD, [task("parent")], 30.0)
    assert outcome.problem == "ended with -6"
    pid = int(probes.read_text())
    # A signal takes effect a moment after it was sent; the process would live for a minute.
    for _ in range(200):
        if is_gone(pid):
            return
        time.sleep(0.05)
    pytest.fail(f"process {pid} outlived the task that started it")


def is_gone(pid: int) -> bool:
    """Whether a process has ended; a zombie has, it only waits for whoever adopted it."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_program_that_cannot_start_answers_no_task() -> None:
    outcomes = run_tasks("deepinfer_core.plugin.no_such_program", [{}, {}], 30.0)
    assert [item.problem for item in outcomes] == ["ended with 1"] * 2
    assert "no_such_program" in outcomes[0].output
