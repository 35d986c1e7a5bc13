"""Errors arrive as what they were."""

import pytest
from deepinfer_core.engine.service.faults import error_of, fault_of
from deepinfer_core.engine.service.messages import Fault
from deepinfer_core.errors import DeepInferError, EngineError

from deepinfer_core import errors

KINDS = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_arrives_with_its_class_message_and_hint(kind: type[DeepInferError]) -> None:
    found = error_of(fault_of(kind("what was found", hint="what to do")))
    assert type(found) is kind
    assert (found.message, found.hint) == ("what was found", "what to do")


def test_a_foreign_error_arrives_as_a_failure_of_the_engine() -> None:
    found = error_of(fault_of(KeyError("a\nb")))
    assert type(found) is EngineError
    assert "KeyError" in found.message
    assert "\n" not in found.message
    assert found.hint


def test_a_foreign_error_that_holds_half_of_a_surrogate_pair_can_be_sent() -> None:
    assert fault_of(ValueError("a\ud800")).message == r"ValueError: a\ud800"


def test_an_error_without_a_text_has_its_name() -> None:
    assert fault_of(MemoryError()).message == "MemoryError"


def test_an_error_of_a_class_that_only_the_other_process_knows_is_a_failure_of_the_engine() -> None:
    assert type(error_of(Fault("unheard_of", "a", "b"))) is EngineError
