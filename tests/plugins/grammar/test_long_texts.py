"""Do long texts beside a bound on their length keep it, and may they have escapes?

Short bounds are counted by an automaton, long ones by the engine; both ways are asked here.
"""

import json
import random

import pytest
from deepinfer_core.interfaces.grammar import CompiledGrammar, GrammarText
from deepinfer_core.testing.contracts.grammar_texts import GRAMMAR_VOCABULARY, encoded, produces

COUNTED = 32  # up to this bound an automaton counts


def compiled(engine: str, low: int, high: int, **more: str) -> CompiledGrammar:
    pytest.importorskip(engine, reason="nox -s grammar runs these")
    from importlib import import_module

    from deepinfer_core.plugin import BuildContext, ModelNeeds

    module = import_module(f"deepinfer_grammar.engines.{engine}_component")
    component = module.build(None, BuildContext(device="cpu", needs=ModelNeeds()))
    schema = {"type": "string", "minLength": low, "maxLength": high, **more}
    asked = GrammarText(kind="json_schema", text=json.dumps(schema))
    grammar: CompiledGrammar = component.open(
        component.compile(asked, GRAMMAR_VOCABULARY), GRAMMAR_VOCABULARY
    )
    return grammar


def allows(grammar: CompiledGrammar, text: str) -> bool:
    return produces(grammar, encoded(json.dumps(text, ensure_ascii=False), by_byte=True))


ENGINES = pytest.mark.parametrize("engine", ["xgrammar", "llguidance"])


@ENGINES
@pytest.mark.parametrize("high", [COUNTED - 1, COUNTED, COUNTED + 1, 200])
@pytest.mark.parametrize("low", [0, 1, 5])
def test_no_text_passes_a_bound(engine: str, low: int, high: int) -> None:
    grammar = compiled(engine, low, high)
    chance = random.Random(f"{low} {high}")
    for length in (0, low - 1, low, high, high + 1):
        if length < 0:
            continue
        assert allows(grammar, "é" * length) == (low <= length <= high)
        for escapes in (1, 2, 3, 9, 40):
            letters = ["é"] * length
            for place in chance.sample(range(length), min(escapes, length)):
                letters[place] = chance.choice('\n\t"\\')
            if not low <= length <= high:
                assert not allows(grammar, "".join(letters)), letters


@ENGINES
@pytest.mark.parametrize("count", [0, 1, 2, 3, 8, 9, 32])
def test_lines_of_a_long_text_may_be_broken(engine: str, count: int) -> None:
    grammar = compiled(engine, 0, 8192)
    line = "java.lang.RuntimeException: an error occurred"
    assert allows(grammar, "\n".join([line] * (count + 1)))


@ENGINES
def test_more_escapes_than_are_counted_are_shut_out_and_never_let_the_bound_slip(
    engine: str,
) -> None:
    grammar = compiled(engine, 0, 8192)
    assert not allows(grammar, "\n" * 33)
    grammar = compiled(engine, 0, 40)
    assert allows(grammar, 'He said "hi" to me')
    for escapes in range(1, 42):
        assert not allows(grammar, "\n" * escapes + "x" * (41 - escapes))
        # As even as it can be, so that no run is longer than its own bound.
        spread = ["x"] * 41
        for number in range(1, escapes + 1):
            spread[min(40, number * 41 // (escapes + 1))] = "\n"
        assert not allows(grammar, "".join(spread))


@ENGINES
def test_the_first_escape_stands_behind_what_the_lower_bound_wants(engine: str) -> None:
    grammar = compiled(engine, 5, 100)
    assert allows(grammar, "abcd\n")
    assert allows(grammar, "abcdef\tg")
    assert not allows(grammar, "abc\n")


@ENGINES
def test_a_character_that_the_pattern_shuts_out_is_no_escape(engine: str) -> None:
    grammar = compiled(engine, 0, 100, pattern='^[a-z"]*$')
    assert allows(grammar, 'ab"cd')
    assert not allows(grammar, "ab\ncd")
