"""Are bounds on the length of texts kept exactly, also where they are negated?"""

import itertools
import json
import random
from typing import Any

import pytest
from deepinfer_core.interfaces.grammar import GrammarText
from deepinfer_core.testing.contracts.grammar_texts import GRAMMAR_VOCABULARY, encoded, produces
from deepinfer_grammar.errors import SchemaFault, TooLarge
from deepinfer_grammar.front import rules_of
from deepinfer_grammar.json_schema.document import Document
from deepinfer_grammar.json_schema.formulas import Schema
from deepinfer_grammar.json_schema.meaning import Meaning
from deepinfer_grammar.json_schema.strings import ALL_STRINGS, NO_STRINGS, Strings
from deepinfer_grammar.regular.determinise import automaton
from deepinfer_grammar.regular.dfa import Dfa
from deepinfer_grammar.regular.lengths import Lengths
from deepinfer_grammar.regular.syntax import parse

PATTERNS = ("a*", "(aa)*", "a+b?", "b(a|b)*", "[ab]{2,4}", "(a|bb)*", "aab", "")
TEXTS = ["".join(text) for size in range(7) for text in itertools.product("ab", repeat=size)]
LONG = {"type": "string", "pattern": "^[a-z]+@[a-z]{1,60}$", "maxLength": 200}
DATE = {"type": "string", "format": "date-time", "maxLength": 40}
SHORT = {"type": "string", "pattern": "^b$"}


def language(pattern: str) -> Dfa:
    return automaton(parse(pattern, "plain"))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_automaton_within_bounds_has_exactly_the_texts_within_them(pattern: str) -> None:
    dfa = language(pattern)
    for low, high in itertools.product(range(5), (None, 0, 1, 2, 3, 5)):
        found = Lengths(dfa).within(low, high)
        for text in TEXTS:
            is_within = low <= len(text) and (high is None or len(text) <= high)
            assert found.accepts(text) == (is_within and dfa.accepts(text)), (low, high, text)
        if high is not None:
            assert Lengths(dfa).has_any(low, high) == (not found.is_empty)


def test_sets_of_texts_are_met_joined_and_negated_exactly() -> None:
    chance = random.Random(5)
    for _ in range(150):
        known: list[tuple[Strings, set[str]]] = []
        for _ in range(2):
            dfa, low = language(chance.choice(PATTERNS)), chance.randint(0, 3)
            high = chance.choice((None, low - 1, low, low + 1, low + 3))
            strings = Strings.of(dfa, low, None if high is None else max(0, high))
            known.append((strings, {text for text in TEXTS if strings.holds(text)}))
        for _ in range(3):
            (one, ones), (two, twos) = chance.choice(known), chance.choice(known)
            known += [
                (one.meet(two), ones & twos),
                (one.join(two), ones | twos),
                (one.inverse(), set(TEXTS) - ones),
            ]
        for strings, expected in known:
            assert {text for text in TEXTS if strings.holds(text)} == expected
            dfa = strings.exactly()
            assert {text for text in TEXTS if dfa.accepts(text)} == expected


def test_a_text_and_its_opposite_are_everything_and_nothing() -> None:
    for strings in (Strings.of(high=5), Strings.of(low=3), Strings.of(language("a*"), 2, 4)):
        assert strings.join(strings.inverse()).inverse() == NO_STRINGS
        assert strings.meet(strings.inverse()) == NO_STRINGS
    assert Strings.of(high=5).join(Strings.of(low=6)) == ALL_STRINGS


def test_a_bound_that_is_too_large_is_lowered_only_where_nothing_is_negated() -> None:
    dfa = language("[a-z]+( [a-z]+)*")
    with pytest.raises(TooLarge, match="a length of 0 to 100000"):
        Lengths(dfa).within(0, 100_000)
    lowered = Lengths(dfa).within_fewer(0, 100_000)
    assert lowered.accepts("a" * 1000)
    assert not lowered.accepts("a" * 100_000)
    with pytest.raises(TooLarge, match="a length of 10000 or more"):
        Lengths(dfa).within(10_000, None)


@pytest.mark.parametrize("bound", [1, 100_000])
def test_lengths_with_gaps_are_found_empty(bound: int) -> None:
    assert not Lengths(language("(aa)*")).has_any(1, 1)
    assert Lengths(language("(aa)*")).has_any(0, bound)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"not": {"anyOf": [DATE, SHORT]}}, "2020-01-01T00:00:00Z"),
        ({"not": {"anyOf": [LONG, SHORT]}}, "a" * 110 + "@b"),
        ({"oneOf": [{"anyOf": [LONG, SHORT]}, {"pattern": "^a"}]}, "a" * 110 + "@b"),
        ({"if": DATE, "then": {"const": "no"}}, "2020-01-01T00:00:00Z"),
    ],
)
def test_what_a_counted_text_rules_out_is_in_no_set(schema: dict[str, Any], text: str) -> None:
    document = Document(json.dumps({"type": "string", **schema}))
    strings = Meaning(document).values(Schema(document.start())).strings
    assert not strings.holds(text)
    assert strings.holds("zzz") or "oneOf" in schema
    assert not strings.exactly().accepts(text)


@pytest.mark.parametrize(
    ("schema", "text", "other"),
    [
        ({"type": "string", "not": {"anyOf": [LONG, SHORT]}}, "a" * 110 + "@b", "zzz"),
        ({"type": "object", "not": {"propertyNames": LONG}}, {"a" * 110 + "@b": 1}, {"zzz": 1}),
    ],
)
def test_what_a_counted_text_rules_out_is_not_written(
    schema: object, text: object, other: object
) -> None:
    pytest.importorskip("llguidance", reason="nox -s grammar runs these")
    from deepinfer_grammar.engines.llguidance_component import LlguidanceGrammar

    component = LlguidanceGrammar()
    asked = GrammarText(kind="json_schema", text=json.dumps(schema))
    compiled = component.compile(asked, GRAMMAR_VOCABULARY)
    grammar = component.open(compiled, GRAMMAR_VOCABULARY)
    assert not produces(grammar, encoded(json.dumps(text), by_byte=True))
    assert produces(grammar, encoded(json.dumps(other), by_byte=True))


def test_what_cannot_be_counted_is_refused_with_its_path() -> None:
    words = {"type": "string", "pattern": "^[a-z]+( [a-z]+)*$", "minLength": 10_000}
    schema = {"type": "object", "properties": {"a": {"properties": {"b": words}}}}
    with pytest.raises(SchemaFault, match=r"^#/properties/a/properties/b/minLength: a length of"):
        rules_of("json_schema", json.dumps(schema))
