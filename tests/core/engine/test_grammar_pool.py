"""Are grammars compiled apart from the engine, each at its own risk?"""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from types import ModuleType
from typing import Any

import pytest
from deepinfer_core.engine.grammar_child import ChildStart
from deepinfer_core.engine.grammar_pool import GrammarPool, PoolLimits
from deepinfer_core.engine.grammar_process import GrammarProcess
from deepinfer_core.errors import EngineError, RequestError
from deepinfer_core.interfaces.grammar import CompiledGrammar, GrammarText, GrammarVocabulary
from deepinfer_core.plugin import BuildContext, ComponentSpec, ModelNeeds, Resolved
from deepinfer_core.plugin.resolved import Pick
from deepinfer_core.testing.letter_grammar import build

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
    with pytest.raises(RequestError, match=r"not compiled within 2 s"):
        slow.result(WAIT_S)
    assert works(pool.compiled(choice("ok", "3")))


def test_one_that_aborts_ends_alone(pool: GrammarPool) -> None:
    with pytest.raises(RequestError, match="ended its process"):
        pool.compiled(choice("!abort")).result(WAIT_S)
    assert works(pool.compiled(choice("ok", "4")))


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
    assert first is second
    compiled = first.result(WAIT_S)
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
        with pytest.raises(RequestError, match=r"takes \d+ bytes, over 8388607"):
            pool.compiled(choice("!large")).result(WAIT_S)
        assert works(pool.compiled(choice("ok")))
        assert pool.kept_bytes == size_of("ok")
    finally:
        pool.close()


def test_a_kind_that_the_component_does_not_take_is_refused_at_once(pool: GrammarPool) -> None:
    with pytest.raises(RequestError, match="'regex'"):
        pool.compiled(GrammarText(kind="regex", text="a"))


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
    start = ChildStart(resolved=resolved(), vocabulary=VOCABULARY, memory_bytes=256 << 20)
    child = GrammarProcess(start)
    child.kill()
    with pytest.raises((EOFError, OSError)):
        child.ask(choice("ok"), WAIT_S)
