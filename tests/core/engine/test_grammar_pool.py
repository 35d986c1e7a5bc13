"""Are grammars compiled apart from the engine, each at its own risk?"""

import contextlib
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from deepinfer_core.engine import grammar_pool
from deepinfer_core.engine.grammar_child import ChildStart, Compiled, GaveUp, warm_up
from deepinfer_core.engine.grammar_jobs import GrammarJob
from deepinfer_core.engine.grammar_limits import PoolLimits, Unmetered
from deepinfer_core.engine.grammar_pool import GrammarPool
from deepinfer_core.engine.grammar_process import GrammarProcess
from deepinfer_core.engine.grammar_worker import GrammarWorker
from deepinfer_core.errors import EngineError, RequestError, UnsupportedGrammar
from deepinfer_core.interfaces.grammar import CompiledGrammar, GrammarText, GrammarVocabulary
from deepinfer_core.plugin import BuildContext, ComponentSpec, ModelNeeds, Resolved
from deepinfer_core.plugin.resolved import Pick
from deepinfer_core.testing.letter_grammar import LetterGrammar, build

VOCABULARY = GrammarVocabulary(pieces=tuple(bytes([byte]) for byte in range(128)), end_ids=(0,))
WAIT_S = 60.0


def resolved(factory: str = "deepinfer_core.testing.letter_grammar:build") -> Resolved:
    spec = ComponentSpec(
        kind="grammar",
        name="test.letters",
        slots=("grammar",),
        contract=1,
        factory=factory,
    )
    pick = Pick(kind="grammar", slot="grammar", spec=spec, settings={}, distribution="test")
    context = BuildContext(device="cpu", needs=ModelNeeds())
    return Resolved(context=context, picks=(pick,), distributions=())


def choice(*texts: str) -> GrammarText:
    import json

    return GrammarText(kind="choice", text=json.dumps(texts))


@pytest.fixture(scope="module")
def pool() -> Iterator[GrammarPool]:
    limits = PoolLimits(workers=2, timeout_s=2.0, memory_bytes=256 << 20, cache_bytes=200)
    pool = GrammarPool(resolved(), VOCABULARY, limits)
    yield pool
    pool.close()


class Meter(Unmetered):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.known = self.waiting = self.compiling = 0
        self.compiled_s: list[float] = []

    def grammar_asked(self, *, is_known: bool) -> None:
        self.known += is_known

    def grammar_compiled(self, elapsed_s: float) -> None:
        self.compiled_s.append(elapsed_s)

    def grammars_now(self, *, waiting: int, compiling: int) -> None:
        self.waiting, self.compiling = waiting, compiling


class MeteredPool(GrammarPool):
    """With a limit that no test waits for."""

    def __init__(self) -> None:
        self.meter = Meter()
        limits = PoolLimits(workers=2, timeout_s=10 * WAIT_S)
        super().__init__(resolved(), VOCABULARY, limits, self.meter)


@pytest.fixture(scope="module")
def patient() -> Iterator[MeteredPool]:
    pool = MeteredPool()
    yield pool
    pool.close()


def wait_until(meter: Meter, holds: Callable[[Meter], object]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not holds(meter):
        assert time.monotonic() < end_s, vars(meter)
        time.sleep(0.01)


def works(future: Future[CompiledGrammar]) -> bool:
    return future.result(WAIT_S).matcher().replay(b"ok")


def test_a_grammar_comes_from_another_process_and_works_here(pool: GrammarPool) -> None:
    matcher = pool.compiled(choice("ok", "no")).result(WAIT_S).matcher()
    assert matcher.replay(b"no")
    assert matcher.accept(0)
    assert not pool.compiled(choice("ok")).result(WAIT_S).matcher().accept(ord("x"))


def test_a_fault_of_the_grammar_is_the_requests(pool: GrammarPool) -> None:
    with pytest.raises(RequestError, match="at character 3") as caught:
        pool.compiled(choice("!fault")).result(WAIT_S)
    assert caught.value.hint == "use others"


def test_a_bug_of_the_component_is_the_engines(pool: GrammarPool) -> None:
    with pytest.raises(EngineError, match="ValueError: a bug"):
        pool.compiled(choice("!break")).result(WAIT_S)
    assert works(pool.compiled(choice("ok", "1")))


def test_one_that_takes_too_long_is_given_up_and_others_are_not_held_up(pool: GrammarPool) -> None:
    assert works(pool.compiled(choice("ok", "warm")))
    slow = pool.compiled(choice("!sleep50"))
    assert works(pool.compiled(choice("ok", "2")))
    assert not slow.done()
    with pytest.raises(UnsupportedGrammar, match=r"not compiled within 2 s"):
        slow.result(WAIT_S)
    assert works(pool.compiled(choice("ok", "3")))
    with pytest.raises(UnsupportedGrammar, match=r"not compiled within 2 s"):
        pool.compiled(choice("!sleep50")).result(0)


def test_a_quick_one_is_not_held_up_by_a_heap_of_slow_ones(patient: MeteredPool) -> None:
    heap = [patient.compiled(choice(f"!sleep{10 * WAIT_S}", f"{n}")) for n in range(8)]
    assert works(patient.compiled(choice("ok", "quick")))
    assert not any(slow.done() for slow in heap)
    for slow in heap:
        slow.cancel()
    wait_until(patient.meter, lambda meter: not meter.waiting and not meter.compiling)


def test_what_gives_way_is_compiled_in_the_end(patient: MeteredPool) -> None:
    """Each of them is too long for its first turns, and others wait at the end of those."""
    several = [patient.compiled(choice("!sleep0.5", "ok", f"{n}")) for n in range(4)]
    assert all(works(one) for one in several)


@pytest.mark.parametrize("how", ["sleep", "deaf"])
def test_one_that_nobody_wants_any_more_is_given_up(patient: MeteredPool, how: str) -> None:
    """Also one that does not stop when it is told to: its process is ended."""
    future = patient.compiled(choice(f"!{how}{10 * WAIT_S}", "unwanted"))
    wait_until(patient.meter, lambda meter: meter.compiling)
    future.cancel()
    wait_until(patient.meter, lambda meter: not meter.compiling)
    assert works(patient.compiled(choice("ok", f"after {how}")))


def test_the_next_one_is_not_blamed_for_a_process_that_was_ended() -> None:
    """Ended for the one before, when that was answered already, or by somebody else."""
    told: queue.Queue[object] = queue.Queue()
    employer: Any = SimpleNamespace(
        ready=lambda worker: told.put("ready"),
        not_ready=lambda worker, error: told.put(error),
        answered=lambda worker, job, outcome: (job.tickets.pop()(), told.put(outcome)),
    )
    start = ChildStart(resolved=resolved(), vocabulary=VOCABULARY, memory_bytes=256 << 20)
    worker = GrammarWorker(start, employer)
    worker.begin()
    assert told.get(timeout=WAIT_S) == "ready"
    for number, meanwhile in enumerate((worker.strike, lambda: None, lambda: None)):
        job = GrammarJob(number, choice("ok", f"{number}"), 0)
        job.tickets.append(meanwhile)  # type: ignore[arg-type]
        worker.give(job)
        assert isinstance(told.get(timeout=WAIT_S), Compiled)
        assert told.get(timeout=WAIT_S) == "ready"
    end_child(worker)
    worker.give(GrammarJob(9, choice("ok", "9"), 0, tickets=[lambda: None]))  # type: ignore[list-item]
    assert isinstance(told.get(timeout=WAIT_S), GaveUp)
    assert told.get(timeout=WAIT_S) == "ready"
    worker.end()
    worker.join()


def test_children_that_are_ended_again_and_again_are_an_error_of_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As by a limit of a container; whoever asks would wait for ever."""
    known = GrammarProcess.begin

    def begin(self: GrammarProcess, start: ChildStart) -> None:
        known(self, start)
        self.strike()
        self._process.wait(WAIT_S)

    pool = GrammarPool(resolved(), VOCABULARY, PoolLimits(workers=1))
    works(pool.compiled(choice("ok")))
    monkeypatch.setattr(GrammarProcess, "begin", begin)
    end_child(pool._workers[0])
    future = pool.compiled(choice("ok", "no"))
    with pytest.raises(EngineError, match="3 processes that compile grammars were ended") as found:
        future.result(WAIT_S)
    assert "limit on the memory" in found.value.hint
    monkeypatch.undo()
    assert works(pool.compiled(choice("ok", "yes")))
    pool.close()


def end_child(worker: GrammarWorker) -> None:
    """As the system does when memory is short."""
    child = worker._child
    assert child is not None
    child.strike()
    end_s = time.monotonic() + WAIT_S
    while child.is_alive:
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_a_child_has_imported_all_it_needs_when_it_is_ready() -> None:
    """What is imported within a turn may be given up half done, again and again."""
    opened: list[bytes] = []

    class Counting(LetterGrammar):
        def open(self, compiled: bytes, vocabulary: GrammarVocabulary) -> CompiledGrammar:
            opened.append(compiled)
            return super().open(compiled, vocabulary)

    warm_up(Counting(), VOCABULARY)
    assert opened == [b'["a"]']


def test_one_that_somebody_still_wants_is_not_given_up(patient: MeteredPool) -> None:
    text = choice("!sleep1", "ok", "two want it")
    first, second = patient.compiled(text), patient.compiled(text)
    first.cancel()
    assert works(second)


def test_one_that_waits_is_dropped_when_nobody_wants_it_any_more(patient: MeteredPool) -> None:
    heap = [patient.compiled(choice(f"!deaf{10 * WAIT_S}", f"waits {n}")) for n in range(4)]
    wait_until(patient.meter, lambda meter: meter.waiting)
    for future in heap:
        future.cancel()
    wait_until(patient.meter, lambda meter: not meter.waiting and not meter.compiling)


def test_what_takes_long_to_open_holds_up_nobody(patient: MeteredPool) -> None:
    slow = patient.compiled(choice("!open1", "ok"))
    assert works(patient.compiled(choice("ok", "beside")))
    assert works(slow)


def test_what_could_not_be_opened_in_time_is_refused_before_that(pool: GrammarPool) -> None:
    with pytest.raises(UnsupportedGrammar, match=r"opening would take 1\.\d s"):
        pool.compiled(choice("!open1.2", "ok")).result(WAIT_S)


def test_what_was_compiled_or_refused_counts_as_known(patient: MeteredPool) -> None:
    meter, texts = patient.meter, (choice("ok", "known"), choice("!fault", "known"))
    before = meter.known
    for _ in range(3):
        for text in texts:
            with contextlib.suppress(UnsupportedGrammar):
                patient.compiled(text).result(WAIT_S)
    assert meter.known - before == 4
    assert all(elapsed_s >= 0 for elapsed_s in meter.compiled_s)


def test_one_that_aborts_ends_alone(pool: GrammarPool) -> None:
    with pytest.raises(RequestError, match="ended its process"):
        pool.compiled(choice("!abort")).result(WAIT_S)
    assert works(pool.compiled(choice("ok", "4")))


def test_one_that_crashes_is_not_said_to_lack_memory(pool: GrammarPool) -> None:
    with pytest.raises(RequestError, match=r"ended its process by SIGSEGV.*nested too") as caught:
        pool.compiled(choice("!crash")).result(WAIT_S)
    assert "memory" not in str(caught.value)
    assert works(pool.compiled(choice("ok", "6")))


def test_one_that_takes_too_much_memory_is_refused(pool: GrammarPool) -> None:
    with pytest.raises(RequestError, match="memory"):
        pool.compiled(choice("!memory")).result(WAIT_S)
    assert works(pool.compiled(choice("ok", "5")))


def test_a_component_that_a_child_cannot_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    only_here: Any = ModuleType("letters_only_here")
    only_here.build = build
    monkeypatch.setitem(sys.modules, "letters_only_here", only_here)
    limits = PoolLimits(workers=1, timeout_s=WAIT_S)
    pool = GrammarPool(resolved("letters_only_here:build"), VOCABULARY, limits)
    try:
        with pytest.raises(EngineError, match="letters_only_here"):
            pool.compiled(choice("ok")).result(WAIT_S)
    finally:
        pool.close()


def test_the_start_of_the_first_child_counts_towards_no_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = GrammarProcess.begin

    def begin_late(process: GrammarProcess, start: ChildStart) -> None:
        time.sleep(1.5)
        begin(process, start)

    monkeypatch.setattr(GrammarProcess, "begin", begin_late)
    pool = GrammarPool(resolved(), VOCABULARY, PoolLimits(workers=1, timeout_s=1.0))
    try:
        assert works(pool.compiled(choice("ok")))
    finally:
        pool.close()


def test_a_slow_one_gives_way_while_a_second_child_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin, begun, go_on = GrammarProcess.begin, [], threading.Event()

    def begin_first(process: GrammarProcess, start: ChildStart) -> None:
        begun.append(process)
        if len(begun) > 1:
            go_on.wait(WAIT_S)
        begin(process, start)

    monkeypatch.setattr(GrammarProcess, "begin", begin_first)
    pool = GrammarPool(resolved(), VOCABULARY, PoolLimits(workers=2, timeout_s=2 * WAIT_S))
    try:
        assert works(pool.compiled(choice("ok", "first")))
        slow = pool.compiled(choice(f"!sleep{10 * WAIT_S}"))
        assert pool.compiled(choice("ok", "beside")).result(WAIT_S / 2)
        assert not slow.done()
    finally:
        go_on.set()
        pool.close()


def test_what_stays_behind_in_a_child_is_no_later_grammars_fault_and_has_an_end() -> None:
    limits = PoolLimits(workers=1, timeout_s=WAIT_S, memory_bytes=200 << 20)
    pool = GrammarPool(resolved(), VOCABULARY, limits)
    try:
        for number in range(3):  # the third stays within its own bound, the child does not
            assert works(pool.compiled(choice("!keep80", "ok", f"{number}")))
        with pytest.raises(RequestError, match=r"^0 MiB are kept"):
            pool.compiled(choice("!kept")).result(WAIT_S)
    finally:
        pool.close()


def test_equal_grammars_are_compiled_once(pool: GrammarPool) -> None:
    first, second = (pool.compiled(choice("!sleep0.3", "ok")) for _ in range(2))
    compiled = first.result(WAIT_S)
    assert second.result(WAIT_S) is compiled
    again = pool.compiled(choice("!sleep0.3", "ok"))
    assert again.done()
    assert again.result() is compiled


def size_of(*texts: str) -> int:
    """What the cache counts: eight bytes a letter of the compiled form, and the text itself."""
    return 8 * sum(map(len, texts)) + len(choice(*texts).text)


def test_the_cache_keeps_the_latest_up_to_the_memory_that_they_hold() -> None:
    texts = [("ok", f"{number}" * 30) for number in range(4)]
    room = 3 * size_of(*texts[0])
    limits = PoolLimits(workers=1, timeout_s=WAIT_S, cache_bytes=room)
    pool = GrammarPool(resolved(), VOCABULARY, limits)
    try:
        kept = [pool.compiled(choice(*one)).result(WAIT_S) for one in texts[:3]]
        assert pool.kept_bytes == room
        assert pool.compiled(choice(*texts[0])).result(WAIT_S) is kept[0]
        pool.compiled(choice(*texts[3])).result(WAIT_S)
        assert pool.kept_bytes == room
        assert pool.compiled(choice(*texts[0])).result(WAIT_S) is kept[0]
        assert pool.compiled(choice(*texts[2])).result(WAIT_S) is kept[2]
        assert pool.compiled(choice(*texts[1])).result(WAIT_S) is not kept[1]
        assert pool.kept_bytes == room
    finally:
        pool.close()


def test_one_that_is_larger_than_the_cache_drives_nothing_out() -> None:
    small = choice("ok", "x" * 9)
    limits = PoolLimits(workers=1, timeout_s=WAIT_S, cache_bytes=size_of("ok", "x" * 9) + 1)
    pool = GrammarPool(resolved(), VOCABULARY, limits)
    try:
        kept = pool.compiled(small).result(WAIT_S)
        assert works(pool.compiled(choice("ok", "y" * 50)))
        assert pool.kept_bytes == size_of("ok", "x" * 9)
        assert pool.compiled(small).result(WAIT_S) is kept
    finally:
        pool.close()


def test_one_whose_compiled_form_takes_too_much_memory_is_refused() -> None:
    limits = PoolLimits(workers=1, timeout_s=WAIT_S, memory_bytes=(8 << 20) - 1)
    pool = GrammarPool(resolved(), VOCABULARY, limits)
    try:
        with pytest.raises(UnsupportedGrammar, match="too much memory"):
            pool.compiled(choice("!large")).result(WAIT_S)
        assert works(pool.compiled(choice("ok")))
        assert pool.kept_bytes == size_of("ok")
    finally:
        pool.close()


def test_a_kind_that_the_component_does_not_take_is_refused_at_once(pool: GrammarPool) -> None:
    with pytest.raises(UnsupportedGrammar, match="'regex'"):
        pool.compiled(GrammarText(kind="regex", text="a"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_pool_that_breaks_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(snapshot: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(grammar_pool, "decide", fail)
    pool = GrammarPool(resolved(), VOCABULARY, PoolLimits(workers=1, timeout_s=WAIT_S))
    pool._thread.join(WAIT_S)
    with pytest.raises(EngineError, match="closed"):
        pool.compiled(choice("ok")).result(WAIT_S)
    pool.close()


def test_a_closed_pool_leaves_nobody_waiting() -> None:
    pool = GrammarPool(resolved(), VOCABULARY, PoolLimits(workers=1, timeout_s=WAIT_S))
    assert works(pool.compiled(choice("ok")))
    under_way, queued = pool.compiled(choice("!sleep50")), pool.compiled(choice("no"))
    began_s = time.monotonic()
    pool.close()
    for future in (under_way, queued):
        with pytest.raises((EngineError, RequestError)):
            future.result(0)
    assert time.monotonic() - began_s < WAIT_S / 2
    with pytest.raises(EngineError, match="closed"):
        pool.compiled(choice("ok"))
    pool.close()


def test_a_child_that_another_thread_ended_is_gone_whatever_is_asked_of_it() -> None:
    child = GrammarProcess()
    child.begin(ChildStart(resolved=resolved(), vocabulary=VOCABULARY, memory_bytes=256 << 20))
    child.kill()
    for _ in range(2):
        with pytest.raises((EOFError, OSError)):
            child.ask(choice("ok"))
    child.give_up()
    child.strike()
    child.kill()


PARENT = """
from deepinfer_core.engine.grammar_child import ChildStart
from deepinfer_core.engine.grammar_process import GrammarProcess
from tests.core.engine.test_grammar_pool import VOCABULARY, choice, resolved

child = GrammarProcess()
child.begin(ChildStart(resolved=resolved(), vocabulary=VOCABULARY, memory_bytes=256 << 20))
print(child._process.pid, flush=True)
child.ask(choice("!deaf60"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_process_ends_with_its_killed_parent_whatever_it_is_doing() -> None:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        stat = Path(f"/proc/{int(parent.stdout.readline())}/stat")
        time.sleep(0.2)  # it compiles
        assert is_running(stat)
        parent.kill()
    end_s = time.monotonic() + 10
    while is_running(stat):
        assert time.monotonic() < end_s
        time.sleep(0.01)


def is_running(stat: Path) -> bool:
    """Whether a process has not ended; what nobody has waited for yet has."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
