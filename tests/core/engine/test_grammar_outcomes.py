"""Is a request told what became of its grammar in words of its own, and is the rest for the log?"""

import logging
import math
from types import SimpleNamespace
from typing import Any

import pytest
from deepinfer_core.engine.grammar_child import Compiled, Refused
from deepinfer_core.engine.grammar_limits import PoolLimits
from deepinfer_core.engine.grammar_memory import FORGET_S
from deepinfer_core.engine.grammar_outcomes import Failed, Usable, made_usable, refused
from deepinfer_core.errors import EngineError, UnsupportedGrammar

COMPILED = Compiled(portable=b"rules", open_s=0.1, size_bytes=1000)


def opened(component: Any, memory_bytes: int = 1000) -> Usable | Failed:
    vocabulary: Any = None
    return made_usable(component, COMPILED, vocabulary, PoolLimits(memory_bytes=memory_bytes))


def component_that(open_it: Any) -> Any:
    return SimpleNamespace(open=lambda compiled, vocabulary: open_it(compiled))


def fail(error: Exception) -> Any:
    raise error


def test_what_was_compiled_is_opened_here() -> None:
    found = opened(component_that(lambda compiled: compiled))
    assert found == Usable(b"rules", 1000)  # type: ignore[arg-type]


def test_what_would_hold_too_much_memory_is_not_opened() -> None:
    found = opened(component_that(lambda _: fail(AssertionError("opened"))), memory_bytes=999)
    assert isinstance(found, Failed)
    assert isinstance(found.error, UnsupportedGrammar)
    assert "takes 1000 bytes, over 999" in found.error.message
    assert "grammar.memory_bytes" in found.error.hint
    assert found.kept_s == math.inf


def test_what_breaks_here_is_not_remembered() -> None:
    found = opened(component_that(lambda _: fail(ValueError("a bug"))))
    assert isinstance(found, Failed)
    assert isinstance(found.error, EngineError)
    assert found.kept_s == 0
    mine = UnsupportedGrammar("at character 3")
    assert opened(component_that(lambda _: fail(mine))) == Failed(mine)


@pytest.mark.parametrize(
    ("outcome", "kind", "kept_s"),
    [
        (Refused("at character 3", "mend it"), UnsupportedGrammar, math.inf),
        (Refused("too much memory", is_limit=True), UnsupportedGrammar, FORGET_S),
        (Refused("a bug", is_fault=False), EngineError, 0.0),
        (None, UnsupportedGrammar, FORGET_S),
    ],
)
def test_a_refusal_is_kept_as_long_as_it_holds(
    outcome: Refused | None, kind: type[Exception], kept_s: float
) -> None:
    found = refused(outcome)
    assert isinstance(found.error, kind)
    assert found.kept_s == kept_s
    if outcome is not None:
        assert (found.error.message, found.error.hint) == (outcome.message, outcome.hint)


def test_what_others_said_of_it_is_in_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "deepinfer"):
        found = refused(Refused("at character 3", detail="PanicError: assertion failed"))
    assert "assertion failed" in caplog.text
    assert "assertion" not in str(found.error)
