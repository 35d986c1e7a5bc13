"""What does a structural tag of many equal parts cost?"""

import json
from typing import Any

from deepinfer_core.interfaces.grammar import GrammarVocabulary
from deepinfer_grammar.tags import tag_rules

VOCABULARY = GrammarVocabulary(pieces=(b"", b"a"), end_ids=(0,))
VALUE = {"type": "json_schema", "json_schema": True}
WORD = {"type": "regex", "pattern": "a+"}


def rules(*elements: dict[str, Any]) -> int:
    tag = {"type": "structural_tag", "format": {"type": "sequence", "elements": list(elements)}}
    return len(tag_rules(json.dumps(tag), VOCABULARY).rules)


def test_equal_grammars_inside_are_written_once() -> None:
    assert rules(VALUE, VALUE, VALUE) == rules(VALUE)
    assert rules(WORD, VALUE, WORD) == rules(WORD, VALUE)


def test_different_grammars_inside_are_not() -> None:
    other = {"type": "regex", "pattern": "b+"}
    schema = {"type": "json_schema", "json_schema": "true"}
    assert rules(WORD, other) > rules(WORD)
    assert rules(VALUE, schema) == rules(VALUE)
    assert rules({"type": "regex", "pattern": "true"}, VALUE) > rules(VALUE)
