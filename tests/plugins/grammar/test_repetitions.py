"""Are repetitions counted right: inside each other, and of blanks in an indentation?"""

import json
from importlib import import_module

import numpy as np
import pytest
from deepinfer_core.interfaces.grammar import CompiledGrammar, GrammarText, GrammarVocabulary
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.testing.contracts.grammar_texts import GRAMMAR_VOCABULARY, encoded, produces
from deepinfer_grammar.json_schema.grammar import INDENTATION


@pytest.fixture(params=["xgrammar", "llguidance"])
def engine(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param, reason=f"needs {request.param}")
    name: str = request.param
    return name


def compiled(engine: str, asked: GrammarText) -> CompiledGrammar:
    module = import_module(f"deepinfer_grammar.engines.{engine}_component")
    component = module.build(None, BuildContext(device="cpu", needs=ModelNeeds()))
    grammar: CompiledGrammar = component.open(
        component.compile(asked, GRAMMAR_VOCABULARY), GRAMMAR_VOCABULARY
    )
    return grammar


@pytest.mark.parametrize(
    ("rule", "counts"),
    [
        ('(("a"{2}){2,3})*', {0, 4, 6, 8, 10, 12, 14, 16}),
        ('("a"{3})?', {0, 3}),
        ('(("a"?){2})+', set(range(17))),
        ('(("a" "a")*){2}', set(range(0, 17, 2))),
        ("([a]{5}){3}", {15}),
        ('"a" "a"{0} ("a" "a"){0,0}', {1}),
        ('"a"{0}', {0}),
    ],
)
def test_repetitions_inside_each_other_multiply(engine: str, rule: str, counts: set[int]) -> None:
    grammar = compiled(engine, GrammarText(kind="ebnf", text=f"root ::= {rule}"))
    found = {n for n in range(17) if produces(grammar, encoded("a" * n, by_byte=True))}
    assert found == counts


@pytest.mark.parametrize("blank", [" ", "\t"])
@pytest.mark.parametrize("count", [0, 1, INDENTATION - 1, INDENTATION, INDENTATION + 1])
def test_an_indentation_has_so_many_blanks_at_most(engine: str, blank: str, count: int) -> None:
    grammar = compiled(engine, GrammarText(kind="json_schema", text="true"))
    text = '{\n@"a": [\n@1,\n@-2,\n@true,\n@false,\n@null,\n@"x",\n@[\n@],\n@{\n@}\n@]\n@}'
    spaced = text.replace("@", blank * count)
    assert json.loads(spaced) == {"a": [1, -2, True, False, None, "x", [], {}]}
    assert produces(grammar, encoded(spaced, by_byte=True)) == (count <= INDENTATION)
    assert produces(grammar, encoded(spaced)) == (count <= INDENTATION)


@pytest.mark.parametrize("behind", ['"', "{", "}", "[", "]", "-", "0", "9", "t", "f", "n"])
def test_a_token_may_go_from_an_indentation_into_what_follows(engine: str, behind: str) -> None:
    single = [bytes([byte]) for byte in range(256)]
    across = f"  {behind}".encode()
    vocabulary = GrammarVocabulary(pieces=(*single, across, b"  x", b""), end_ids=(258,))
    module = import_module(f"deepinfer_grammar.engines.{engine}_component")
    component = module.build(None, BuildContext(device="cpu", needs=ModelNeeds()))
    asked = GrammarText(kind="json_schema", text="true")
    grammar = component.open(component.compile(asked, vocabulary), vocabulary)
    matcher = grammar.matcher()
    assert matcher.replay(b"{\n" if behind == "}" else b"[\n")
    mask_RW = np.zeros((1, vocabulary.words), dtype=np.int32)
    matcher.fill_mask(mask_RW, 0)
    bits = np.unpackbits(mask_RW.view(np.uint8), bitorder="little")
    assert (bits[256], bits[257]) == (1, 0)
