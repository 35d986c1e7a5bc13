"""Is what became of a grammar told again, for as long as it holds, and in bounded memory?"""

import math
from types import SimpleNamespace
from typing import Any

import pytest
from deepinfer_core.engine import grammar_memory
from deepinfer_core.engine.grammar_memory import GrammarMemory
from deepinfer_core.errors import UnsupportedGrammar
from deepinfer_core.interfaces.grammar import GrammarText

A = GrammarText(kind="regex", text="a")
OTHERS = [
    GrammarText(kind="choice", text="a"),
    GrammarText(kind="regex", text="b"),
    GrammarText(kind="regex", text="a", root="b"),
]


def compiled() -> Any:
    return SimpleNamespace()


def test_what_was_not_asked_for_is_not_known() -> None:
    memory = GrammarMemory(100)
    assert memory.compiled(A) is None
    assert memory.failure(A, 0.0) is None
    assert memory.turns(A) == 0


def test_a_grammar_is_what_its_kind_text_and_root_say() -> None:
    memory, kept = GrammarMemory(100), compiled()
    memory.keep(A, kept, 10)
    memory.fail(A, UnsupportedGrammar("wrong"))
    memory.slow(A, 4)
    assert memory.compiled(GrammarText(kind="regex", text="a")) is kept
    for other in OTHERS:
        assert memory.compiled(other) is None
        assert memory.failure(other, 0.0) is None
        assert memory.turns(other) == 0


def test_a_failure_is_told_again_as_a_new_error() -> None:
    memory = GrammarMemory(100)
    memory.fail(A, UnsupportedGrammar("wrong at character 3", hint="mend it"))
    first, second = memory.failure(A, 1.0), memory.failure(A, math.inf)
    assert first is not None
    assert second is None or second is not first
    assert (first.message, first.hint) == ("wrong at character 3", "mend it")


def test_a_failure_that_may_pass_is_forgotten_when_its_time_is_over() -> None:
    memory = GrammarMemory(100)
    memory.fail(A, UnsupportedGrammar("too slow"), until_s=60.0)
    assert memory.failure(A, 59.9) is not None
    assert memory.failure(A, 60.0) is None
    assert memory.failure(A, 59.9) is None


def test_the_latest_failure_counts() -> None:
    memory = GrammarMemory(100)
    memory.fail(A, UnsupportedGrammar("first"), until_s=10.0)
    memory.fail(A, UnsupportedGrammar("second"), until_s=20.0)
    found = memory.failure(A, 15.0)
    assert found is not None
    assert found.message == "second"


def test_failures_are_bounded_and_those_asked_for_longest_ago_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grammar_memory, "MOST_FAILURES", 2)
    memory, (b, c, _) = GrammarMemory(100), OTHERS
    memory.fail(A, UnsupportedGrammar("a"))
    memory.fail(b, UnsupportedGrammar("b"))
    assert memory.failure(A, 0.0) is not None
    memory.fail(c, UnsupportedGrammar("c"))
    assert memory.failure(b, 0.0) is None
    assert memory.failure(A, 0.0) is not None
    assert memory.failure(c, 0.0) is not None


def test_how_slow_grammars_are_is_remembered_for_few_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grammar_memory, "MOST_FAILURES", 2)
    memory = GrammarMemory(100)
    memory.slow(A, 3)
    memory.slow(A, 5)
    memory.slow(OTHERS[0], 1)
    assert (memory.turns(A), memory.turns(OTHERS[0])) == (5, 1)
    memory.slow(OTHERS[1], 2)
    assert (memory.turns(A), memory.turns(OTHERS[1])) == (0, 2)


def test_one_that_is_kept_twice_counts_once() -> None:
    memory = GrammarMemory(100)
    memory.keep(A, compiled(), 60)
    memory.keep(A, last := compiled(), 70)
    assert memory.kept_bytes == 70
    assert memory.compiled(A) is last


def test_half_of_a_surrogate_pair_has_a_place_too() -> None:
    memory, broken = GrammarMemory(100), GrammarText(kind="regex", text="\ud800")
    memory.fail(broken, UnsupportedGrammar("no character"))
    assert memory.failure(broken, 0.0) is not None
