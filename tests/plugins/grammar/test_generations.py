"""Do the tiny checkpoint's answers belong to their grammars?

The same script writes a thousand of each kind: ``benchmarks/grammar_generations.py``.
"""

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from deepinfer_core.config import load_settings
from deepinfer_core.interfaces.grammar import GRAMMAR_KINDS

from deepinfer_core import LLM, SamplingParams

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
    assert found["whole"] > 2, "too few answers ended for the test to mean anything"


def test_a_judge_of_tags_takes_no_answer_that_lacks_a_control_token(
    llm: LLM, script: ModuleType
) -> None:
    grammar = script.KINDS["structural_tag"][1]
    asked = {"kind": "structural_tag", "grammar": grammar}
    [answer] = llm.generate("Tom says", SamplingParams(max_tokens=40, seed=1, grammar=asked))
    judge = script.judge_of(llm, "structural_tag", grammar)
    assert judge(answer)
    controls = [p for p, one in enumerate(answer.token_ids) if one in llm.tokenizer.added.values()]
    assert len(controls) == 3
    for place in controls:
        rest = answer.token_ids[:place] + answer.token_ids[place + 1 :]
        assert not judge(replace(answer, token_ids=rest))


@pytest.mark.parametrize(
    ("kind", "grammar", "text"),
    [
        ("json_schema", {"type": "null"}, "1"),
        ("json_object", "", "[1]"),
        ("regex", "a+", "ab"),
        ("ebnf", 'root ::= "a" root | "b"', "aa"),
        ("choice", ["yes"], "ye"),
    ],
)
def test_a_judge_takes_no_text_that_does_not_belong(
    script: ModuleType, kind: str, grammar: Any, text: str
) -> None:
    assert not script.text_judge(kind, grammar)(text)
