r"""Is a class such as ``\w`` never wider than both of its readings, wherever it stands?

Python's ``re`` reads each pattern twice, with ASCII classes and Unicode's; what both match, and no
more, may be written.
"""

import itertools
import re

import pytest
from deepinfer_grammar.regular.determinise import automaton
from deepinfer_grammar.regular.dfa import Dfa
from deepinfer_grammar.regular.syntax import parse

LETTERS = ("a", "3", "_", " ", "!", "\n", "é", "٣", "½", "\u2029", "\u00a0", "\x85", "—")
CLASSES = (
    r"\w", r"\W", r"\d", r"\D", r"\s", r"\S",
    r"[^\w]", r"[^\W]", r"[^\d]", r"[^\D]", r"[^\s]", r"[^\S]",
    r"[^\s\S]", r"[\s\S]", r"[\W\w]", r"[^\D\d]", r"[^\W\d]", r"[^\D\s]", r"[\w!]",
    r"(?!\s)[^a]", r"(?!\W)[^a]", r"(?=\w)[^a]", r"(?![^\w])[^a]", r"[^a](?<!\w)", r"[^a](?<=\W)",
)  # fmt: skip
BETWEEN = (r"[^x]\b[^x]", r"[^x]\B[^x]", r"\b[^x][^x]\b", r"\B[^x][^x]", r"\b[^x]\B[^x]")


def accepts(dfa: Dfa, text: str) -> bool:
    state = 0
    for letter in text:
        for low, high, to in dfa.edges[state]:
            if low <= ord(letter) <= high:
                state = to
                break
        else:
            return False
    return dfa.accepting[state]


def both(pattern: str, text: str) -> bool:
    return bool(re.fullmatch(pattern, text)) and bool(re.fullmatch(pattern, text, re.ASCII))


@pytest.mark.parametrize("pattern", CLASSES)
def test_a_class_allows_what_both_readings_allow(pattern: str) -> None:
    dfa = automaton(parse(pattern, "plain"))
    for letter in LETTERS:
        assert accepts(dfa, letter) == both(pattern, letter), letter


@pytest.mark.parametrize("pattern", BETWEEN)
def test_a_word_boundary_is_one_under_both_readings(pattern: str) -> None:
    dfa = automaton(parse(pattern, "plain"))
    for pair in itertools.product(LETTERS, repeat=2):
        text = "".join(pair)
        assert accepts(dfa, text) == both(pattern, text), text


@pytest.mark.parametrize("pattern", [r"[^\s]", r"[^\w]", r"a\b[^x]"])
def test_the_dialect_of_schemas_has_one_reading(pattern: str) -> None:
    r"""``\w`` is ASCII's, ``\s`` Unicode's, whatever is made of them."""
    dfa = automaton(parse(pattern, "schema"))
    judge = pattern.replace(r"\w", "a-zA-Z0-9_").replace(r"\s", r"\s\ufeff")
    flags = re.ASCII if r"\b" in pattern else re.UNICODE
    for letter in ("a", "é", "!", "\u2029", " "):
        text = "a" + letter if pattern.startswith("a") else letter
        assert accepts(dfa, text) == bool(re.fullmatch(judge, text, flags)), text
