"""Do the tiny checkpoint's answers belong to their grammars?

The same script writes a thousand of each kind: ``benchmarks/grammar_generations.py``.
"""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from deepinfer_core.config import load_settings
from deepinfer_core.interfaces.grammar import GRAMMAR_KINDS

from deepinfer_core import LLM

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
pytest.importorskip("jsonschema", reason="needs jsonschema, a judge")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location(
        "grammar_generations", BENCHMARKS / "grammar_generations.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.remove(str(BENCHMARKS))
    return module


def opened(component: str, **more: object) -> LLM:
    api: dict[str, object] = {"components.grammar.use": component, "engine.max_num_seqs": 32}
    return LLM.from_settings(load_settings(None, api=api | more))


@pytest.fixture(scope="module", params=["grammar.xgrammar", "grammar.llguidance"])
def llm(request: pytest.FixtureRequest) -> Iterator[LLM]:
    pytest.importorskip("deepinfer_tiny", reason="needs the tiny checkpoint")
    pytest.importorskip(request.param.removeprefix("grammar."), reason=f"needs {request.param}")
    with opened(request.param) as llm:
        yield llm


@pytest.mark.slow
@pytest.mark.parametrize("kind", GRAMMAR_KINDS)
def test_every_answer_that_ends_belongs_to_its_grammar(
    llm: LLM, script: ModuleType, kind: str
) -> None:
    found = script.run(llm, kind, script.KINDS[kind], 24, 40)
    assert (found["wrong"], found["failed"]) == (0, 0), found["examples"]
    assert found["whole"] + found["cut"] == 24
    assert found["whole"] > 6, "too few answers ended for the test to mean anything"
