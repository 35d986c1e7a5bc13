"""Is each told in time what became of its grammar, and is a grammar given up that nobody wants?

Times are made up; nothing is compiled.
"""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from deepinfer_core.engine.grammar_jobs import GrammarJob
from deepinfer_core.engine.grammar_limits import PoolLimits, Unmetered
from deepinfer_core.engine.grammar_memory import FORGET_S
from deepinfer_core.engine.grammar_outcomes import Failed, Usable, refused
from deepinfer_core.engine.grammar_queue import GrammarQueue
from deepinfer_core.errors import EngineBusy, EngineError, UnsupportedGrammar
from deepinfer_core.interfaces.grammar import CompiledGrammar, GrammarText

LIMIT_S = 20.0


class Meter(Unmetered):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.asked: list[bool] = []
        self.compiled_s: list[float] = []

    def grammar_asked(self, *, is_known: bool) -> None:
        self.asked.append(is_known)

    def grammar_compiled(self, elapsed_s: float) -> None:
        self.compiled_s.append(elapsed_s)


class Bench:
    """A queue, and whom it stops."""

    def __init__(self, **limits: Any) -> None:
        self.meter = Meter()
        self.stopped: list[GrammarJob] = []
        limits = {"timeout_s": LIMIT_S, **limits}
        self.queue = GrammarQueue(
            PoolLimits(**limits), self.meter, lambda job, _: self.stopped.append(job)
        )

    def ask(self, text: str, now_s: float = 0.0, caller: str = "") -> Future[CompiledGrammar]:
        return self.queue.ask(GrammarText(kind="regex", text=text), caller, now_s)

    def job(self, text: str) -> GrammarJob:
        return next(job for job in self.queue.jobs if job.grammar.text == text)

    def expire(self, now_s: float, *, more_s: float = 0.0) -> None:
        for job in self.queue.jobs:
            self.queue.expire(job, now_s, more_s=more_s)

    def cancel(self, text: str, future: Future[CompiledGrammar], now_s: float = 0.0) -> None:
        assert future.cancel()
        self.queue.let_go(GrammarText(kind="regex", text=text), future, now_s)


def usable(size_bytes: int = 1) -> Usable:
    found: Any = SimpleNamespace()
    return Usable(found, size_bytes)


def test_equal_grammars_are_one_job_and_each_has_a_future_of_its_own() -> None:
    bench = Bench()
    first, second = bench.ask("a"), bench.ask("a")
    assert first is not second
    [job] = bench.queue.jobs
    done = usable()
    bench.queue.finish(job, done, 1.0)
    assert first.result(0) is second.result(0) is done.compiled
    assert bench.ask("a").result(0) is done.compiled
    assert not bench.queue.jobs
    assert bench.meter.asked == [False, False, True]


def test_each_waits_until_its_own_limit() -> None:
    bench = Bench()
    first, second = bench.ask("a", 0.0), bench.ask("a", 15.0)
    bench.expire(LIMIT_S - 0.1)
    assert not first.done()
    bench.expire(LIMIT_S)
    assert first.done()
    assert not second.done()
    bench.expire(15.0 + LIMIT_S)
    assert second.done()
    assert not bench.queue.jobs


def test_time_without_a_process_counts_towards_nobodys_limit() -> None:
    bench = Bench()
    before, meanwhile = bench.ask("a", 0.0), bench.ask("b", 7.0)
    bench.queue.stood_still(5.0, 8.0)
    after = bench.ask("c", 9.0)
    for future, limit_s in ((before, 23.0), (meanwhile, 28.0), (after, 29.0)):
        bench.expire(limit_s - 0.1)
        assert not future.done()
        bench.expire(limit_s)
        assert future.done()


def test_one_that_waited_most_of_the_time_learns_that_and_may_ask_again() -> None:
    bench = Bench()
    future = bench.ask("a")
    bench.job("a").since_s = 10.5
    bench.expire(LIMIT_S)
    with pytest.raises(EngineBusy, match=r"within 20 s: it waited 10\.5 s of them") as caught:
        future.result(0)
    assert "ask again" in caught.value.hint
    assert not bench.ask("a", LIMIT_S).done()


def test_one_that_was_compiled_most_of_the_time_learns_that_and_is_not_tried_again_soon() -> None:
    bench = Bench()
    future = bench.ask("a")
    job = bench.job("a")
    job.ran_s, job.since_s = 3.0, 12.0
    bench.expire(LIMIT_S)
    with pytest.raises(UnsupportedGrammar, match=r"within 20 s: compiling took 11\.0 s") as caught:
        future.result(0)
    assert "grammar.timeout_s" in caught.value.hint
    again = bench.ask("a", LIMIT_S + FORGET_S - 0.1)
    with pytest.raises(UnsupportedGrammar, match=r"compiling took 11\.0 s"):
        again.result(0)
    assert not bench.ask("a", LIMIT_S + FORGET_S).done()
    assert bench.meter.asked == [False, True, False]
    assert bench.meter.compiled_s == [11.0]


def test_one_that_cannot_be_opened_in_time_fails_before_it_is_tried() -> None:
    bench = Bench()
    early, late = bench.ask("a", 0.0), bench.ask("a", 9.0)
    job = bench.job("a")
    job.since_s, job.is_opening = 0.0, True
    bench.expire(12.0, more_s=9.0)
    with pytest.raises(UnsupportedGrammar, match=r"took 12\.0 s, and opening would take 9\.0 s"):
        early.result(0)
    assert not late.done()


def test_a_grammar_that_waits_and_that_nobody_wants_any_more_is_dropped() -> None:
    bench = Bench()
    first, second = bench.ask("a"), bench.ask("a")
    bench.cancel("a", first)
    assert bench.queue.waiting
    bench.cancel("a", second)
    assert not bench.queue.jobs
    assert not bench.stopped


def test_a_grammar_that_is_compiled_and_that_nobody_wants_any_more_is_stopped() -> None:
    bench = Bench()
    future = bench.ask("a")
    job = bench.job("a")
    job.since_s = 0.0
    bench.cancel("a", future, 3.0)
    assert bench.stopped == [job]
    assert not bench.queue.jobs
    assert bench.meter.compiled_s == [3.0]
    bench.ask("a", 4.0)
    assert bench.job("a") is not job
    assert bench.job("a").turns > 3, "that it is slow was forgotten"


def test_what_is_being_opened_is_kept_though_nobody_wants_it() -> None:
    bench = Bench()
    future = bench.ask("a")
    job = bench.job("a")
    job.since_s, job.is_opening = 0.0, True
    bench.cancel("a", future)
    assert not bench.stopped
    again = bench.ask("a")
    assert bench.queue.jobs == [job]
    bench.queue.finish(job, done := usable(), 1.0)
    assert again.result(0) is done.compiled


def test_one_that_was_let_go_is_not_given_what_comes() -> None:
    bench = Bench()
    first, second = bench.ask("a"), bench.ask("a")
    assert first.cancel()  # and the queue has not heard of it yet
    bench.queue.finish(bench.job("a"), done := usable(), 1.0)
    assert first.cancelled()
    assert second.result(0) is done.compiled


def test_what_is_wrong_with_a_grammar_stays_so() -> None:
    bench = Bench()
    bench.ask("a")
    wrong = Failed(UnsupportedGrammar("at character 3", hint="mend it"), float("inf"))
    bench.queue.finish(bench.job("a"), wrong, 0.0)
    with pytest.raises(UnsupportedGrammar, match="at character 3") as caught:
        bench.ask("a", 1e9).result(0)
    assert caught.value.hint == "mend it"


def test_what_broke_a_process_is_not_tried_again_soon() -> None:
    bench = Bench()
    bench.ask("a")
    bench.queue.finish(bench.job("a"), refused(None), 0.0)
    assert bench.ask("a", FORGET_S - 0.1).exception(0) is not None
    assert not bench.ask("a", FORGET_S).done()


def test_what_broke_by_no_fault_of_its_own_is_tried_again() -> None:
    bench = Bench()
    future = bench.ask("a")
    bench.queue.finish(bench.job("a"), Failed(EngineError("a bug")), 0.0)
    assert isinstance(future.exception(0), EngineError)
    assert not bench.ask("a").done()


def test_a_full_queue_refuses_one_more_and_says_so() -> None:
    bench = Bench(max_waiting=2)
    first, second = bench.ask("a"), bench.ask("b")
    with pytest.raises(EngineBusy, match="2 grammars wait") as caught:
        bench.ask("c").result(0)
    assert "grammar.max_waiting" in caught.value.hint
    assert not bench.ask("b").done(), "it waits already"
    bench.job("a").since_s = 0.0
    assert not bench.ask("c").done()
    assert not first.done()
    assert not second.done()


def test_who_filled_the_queue_makes_room_for_others() -> None:
    bench = Bench(max_waiting=3)
    mine = [bench.ask(text, caller="me") for text in "abc"]
    yours = bench.ask("d", caller="you")
    assert not yours.done()
    assert [one.done() for one in mine] == [False, False, True]
    assert isinstance(mine[2].exception(0), EngineBusy)
    assert isinstance(bench.ask("e", caller="me").exception(0), EngineBusy)
