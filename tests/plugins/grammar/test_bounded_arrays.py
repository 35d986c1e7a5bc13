"""Are items told apart by value, and is what cannot be counted refused at its keyword?"""

import json
from importlib import import_module
from typing import Any

import pytest
from deepinfer_core.interfaces.grammar import GrammarText
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.testing.contracts.grammar_texts import GRAMMAR_VOCABULARY, encoded, produces
from deepinfer_grammar.errors import SchemaFault
from deepinfer_grammar.front import rules_of


@pytest.mark.parametrize("engine", ["xgrammar", "llguidance"])
@pytest.mark.parametrize(
    ("items", "members", "others"),
    [
        ({"enum": [1, 2]}, ("[]", "[1,2]", "[2, 1.0]"), ("[1,1]", "[1,1.0]", "[1,2,1]", "[3]")),
        ({"enum": [-0.5, "a", None]}, ('[-0.5,null,"a"]',), ("[-0.5,-0.50]", "[null,null]")),
        ({"type": "integer", "minimum": -1, "maximum": 1}, ("[0,-1,1]",), ("[0,-0]", "[0,0.0]")),
    ],
)
def test_unique_numbers_are_unique_by_value(
    engine: str, items: dict[str, Any], members: tuple[str, ...], others: tuple[str, ...]
) -> None:
    pytest.importorskip(engine, reason="nox -s grammar runs these")
    module = import_module(f"deepinfer_grammar.engines.{engine}_component")
    component = module.build(None, BuildContext(device="cpu", needs=ModelNeeds()))
    schema = {"type": "array", "uniqueItems": True, "items": items}
    asked = GrammarText(kind="json_schema", text=json.dumps(schema))
    grammar = component.open(component.compile(asked, GRAMMAR_VOCABULARY), GRAMMAR_VOCABULARY)
    for text in members:
        assert produces(grammar, encoded(text, by_byte=True)), text
    for text in others:
        assert not produces(grammar, encoded(text, by_byte=True)), text


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"uniqueItems": True, "items": {"type": "integer", "minimum": 0}}, "uniqueItems"),
        ({"uniqueItems": True, "items": {"enum": [[1], [2]]}}, "uniqueItems"),
        ({"type": "array", "maxItems": 5001}, "maxItems"),
        ({"type": "array", "minItems": 5001}, "minItems"),
        ({"type": "object", "maxProperties": 201}, "maxProperties"),
        ({"type": "object", "minProperties": 201}, "minProperties"),
    ],
)
def test_what_cannot_be_counted_is_refused_at_its_keyword(
    schema: dict[str, Any], path: str
) -> None:
    asked = json.dumps({"type": "object", "properties": {"a": schema}})
    with pytest.raises(SchemaFault) as caught:
        rules_of("json_schema", asked)
    assert caught.value.path == f"#/properties/a/{path}"
