"""Are limits of the engines told in words of ours, and is a dead end none of them?"""

import json

import numpy as np
import pytest
from deepinfer_core.interfaces.grammar import Grammar, GrammarText, GrammarVocabulary
from deepinfer_core.testing.contracts.grammar_texts import GRAMMAR_VOCABULARY, allowed
from deepinfer_grammar.beginning import check_first_characters
from deepinfer_grammar.errors import GrammarFault
from deepinfer_grammar.front import rules_of

RAW = ("panic", "assert", "symbols.len", "Parser", "<state>", "backtrace", "llguidance error")


@pytest.fixture
def llguidance() -> Grammar:
    pytest.importorskip("llguidance", reason="nox -s grammar runs these")
    from deepinfer_grammar.engines.llguidance_component import LlguidanceGrammar

    return LlguidanceGrammar()


def test_more_symbols_than_llguidance_counts_are_refused_in_our_words(llguidance: Grammar) -> None:
    words = " | ".join(f'"{number:06d}q"' for number in range(12_000))
    compiled = llguidance.compile(
        GrammarText(kind="ebnf", text=f"root ::= {words}"), GRAMMAR_VOCABULARY
    )
    with pytest.raises(GrammarFault, match=r"#: .* at most 65,000 symbols") as caught:
        llguidance.open(compiled, GRAMMAR_VOCABULARY)
    assert not any(word in str(caught.value) for word in RAW)
    assert "symbols" in str(caught.value.__cause__)
    assert len(str(caught.value.__cause__).splitlines()) == 1


def test_a_text_that_llguidance_gives_up_on_is_told_where(llguidance: Grammar) -> None:
    many = range(2_500)
    rules = "\n".join(f'r{n} ::= "a" s{n}\ns{n} ::= "b{n}"' for n in many)
    text = 'root ::= "x" t\nt ::= ' + " | ".join(f"r{n}" for n in many) + "\n" + rules
    compiled = llguidance.compile(GrammarText(kind="ebnf", text=text), GRAMMAR_VOCABULARY)
    matcher = llguidance.open(compiled, GRAMMAR_VOCABULARY).matcher()

    def follow() -> None:
        for letter in b"xab":
            allowed(matcher)
            matcher.accept(letter)

    with pytest.raises(GrammarFault, match=r"too many ways .* behind [01] tokens") as caught:
        follow()
    assert not any(word in str(caught.value) for word in RAW)


def test_where_no_token_goes_on_nothing_is_allowed_and_nothing_broken(llguidance: Grammar) -> None:
    poor = GrammarVocabulary(pieces=(b"x", b"yz!", b""), end_ids=(2,))
    compiled = llguidance.compile(GrammarText(kind="regex", text="xyz"), poor)
    matcher = llguidance.open(compiled, poor).matcher()
    mask_RW = np.zeros((1, poor.words), dtype=np.int32)
    matcher.fill_mask(mask_RW, 0)
    assert mask_RW[0, 0] == 0b001
    assert matcher.accept(0)
    matcher.fill_mask(mask_RW, 0)
    assert mask_RW[0, 0] == 0


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("regex", "a?\u00e9"),
        ("regex", "(a|b)*"),
        ("regex", "[\u00e9b]"),
        ("ebnf", 'root ::= x "\u00e9"\nx ::= "" | "a"'),
        ("ebnf", 'root ::= x? y\nx ::= "\u00e9"\ny ::= "b"'),
        ("json_schema", json.dumps({"type": "integer", "minimum": 5})),
        ("json_schema", json.dumps({"enum": ["a", None]})),
    ],
)
def test_what_some_token_can_begin_is_taken(kind: str, text: str) -> None:
    vocabulary = GrammarVocabulary(pieces=(b"", b"a", b"b", b"nu", b"7"), end_ids=(0,))
    asked = GrammarText(kind=kind, text=text)  # type: ignore[arg-type]
    check_first_characters(rules_of(kind, text), asked, vocabulary)


@pytest.mark.parametrize(
    ("kind", "text", "place"),
    [
        ("regex", "\u00e9a|\u00eab", r"U\+00E9 at character 0"),
        ("ebnf", 'x ::= "a"\nroot ::= y x\ny ::= "\u00e9"', r"U\+00E9 at character 10"),
        ("json_schema", json.dumps({"type": "array"}), r"#: .* begins with U\+005B"),
        ("choice", '["c", "e", "g", "i", "k"]', r"#: .* U\+0063, U\+0065, U\+0067 or others"),
    ],
)
def test_what_no_token_can_begin_is_refused_with_its_place(
    kind: str, text: str, place: str
) -> None:
    vocabulary = GrammarVocabulary(pieces=(b"", b"a", b"b", b"nu", b"7"), end_ids=(0,))
    asked = GrammarText(kind=kind, text=text)  # type: ignore[arg-type]
    with pytest.raises(GrammarFault, match=place):
        check_first_characters(rules_of(kind, text), asked, vocabulary)
