"""Is every text that the masks let through valid, whatever keywords a schema combines?

The judge is the jsonschema package, with the dialect of draft 2020-12.
"""

import json
import random
import sys
from pathlib import Path

import pytest
from deepinfer_core.errors import RequestError
from deepinfer_core.interfaces.grammar import GrammarText
from deepinfer_core.testing.contracts.grammar_texts import GRAMMAR_VOCABULARY
from deepinfer_grammar.json_schema.document import Document
from deepinfer_grammar.json_schema.formulas import Schema
from deepinfer_grammar.json_schema.meaning import Meaning

sys.path.insert(0, str(Path(__file__).parent))
from random_schemas import LONG_STRINGS, counted, schema, written

jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema, the judge")
pytest.importorskip("xgrammar", reason="needs xgrammar")

SCHEMAS, TEXTS, LONGEST = 30, 4, 100


def test_what_is_written_is_valid() -> None:
    from deepinfer_grammar.engines.xgrammar_component import XgrammarGrammar

    component, ended = XgrammarGrammar(), 0
    for seed in range(SCHEMAS):
        asked = schema(random.Random(seed), 2)
        text = json.dumps(asked)
        try:
            compiled = component.compile(
                GrammarText(kind="json_schema", text=text), GRAMMAR_VOCABULARY
            )
        except RequestError:
            continue  # what is refused cannot be weak
        grammar = component.open(compiled, GRAMMAR_VOCABULARY)
        for walk in range(TEXTS):
            chance = random.Random(1000 * seed + walk)
            found = written(grammar, GRAMMAR_VOCABULARY, chance, LONGEST)
            if found is not None:
                ended += 1
                jsonschema.Draft202012Validator(asked).validate(json.loads(found))
    assert ended > SCHEMAS, "too few texts ended for the test to mean anything"


def test_sets_of_texts_are_exact_however_long_what_they_are_made_of() -> None:
    """Also where the bounds of what is joined or negated could not be counted."""
    for seed in range(60):
        asked = {"type": "string", **counted(random.Random(seed), 2)}
        document = Document(json.dumps(asked))
        found = Meaning(document).values(Schema(document.start())).strings
        judge = jsonschema.Draft202012Validator(asked)
        for text in LONG_STRINGS:
            assert found.holds(text) == judge.is_valid(text), (asked, text)
