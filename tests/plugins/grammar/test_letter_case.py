"""Is a set whose case is ignored never wider than libraries read it, of all characters?

The judge is Python's ``re``, with Unicode's letters and with ASCII's; what both match, and no more,
may be written.
"""

import re

import pytest
from deepinfer_grammar.regular.determinise import automaton
from deepinfer_grammar.regular.syntax import Dialect, parse

EVERY = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
SHUT_OUT = (
    "(?i)[^k]", "(?i)[^K]", "(?i)[^s]", "(?i)[^i]", "(?i)[^a-z]", "(?i)[^J-L]", "(?i)[^é]",
    "(?i)[^\u03c3]", "(?i)[^\u03c2]", "(?i)[^ß]", "(?i)[^å]", "(?i)[^\u00b5]", "(?i)[^ǆ]",
    "(?i)[^\u2126]", "(?i)[^\u0131]",
    "(?i)[^\u0130]", "(?i)[^\u0390]", "(?i)[^\ufb05]", "(?i)[^\u1c80-\u1c88]", "(?i)[^\\x4b]",
    "(?i)[^\\u0130-\\u0180]", "(?i)[^\\Wk]", "(?i)(?!k)[^\n]", "(?i)(?![^k])[^\n]",
    "(?i)(?=[^k])[^\n]", "(?i:[^k])", "(?i)(?-i:[^k])", "[^k]",
)  # fmt: skip
ALLOWED = ("(?i)k", "(?i)[a-z]", "(?i)[^\\W]", "(?i)i", "(?i)\\x4b", "(?i)\\w", "(?i)(?=k).")
BEYOND_ASCII = (
    "(?i)é",
    "(?i)\u03c3",
    "(?i)[à-ÿ]",
    "(?i)[k\u017f]",
    "(?i)\u0131",
    "(?i)[\u0130-\u0131]",
    "(?i)\u212a",
)


def taken(pattern: str, dialect: Dialect) -> str:
    """Single characters that the automaton of a pattern accepts, in order."""
    dfa = automaton(parse(pattern, dialect))
    found = (
        EVERY[place(low) : place(high + 1)] for low, high, to in dfa.edges[0] if dfa.accepting[to]
    )
    return "".join(found)


def place(code: int) -> int:
    """Of a code point in the text of all characters."""
    return code if code <= 0xD800 else max(code, 0xE000) - 0x800


def judged(pattern: str, text: str = EVERY, flags: re.RegexFlag = re.UNICODE) -> str:
    return "".join(re.findall(pattern, text, flags))


def judged_twice(pattern: str) -> str:
    return judged(pattern, judged(pattern), re.ASCII)


@pytest.mark.parametrize("pattern", SHUT_OUT)
def test_what_is_shut_out_is_so_in_every_case_that_a_reading_knows(pattern: str) -> None:
    found, expected = taken(pattern, "plain"), judged_twice(pattern)
    assert found == expected, sorted({*found} ^ {*expected})[:20]


@pytest.mark.parametrize("pattern", ALLOWED)
def test_of_ascii_letters_only_the_other_ascii_case_is_allowed(pattern: str) -> None:
    assert taken(pattern, "plain") == judged_twice(pattern)


@pytest.mark.parametrize("pattern", BEYOND_ASCII)
def test_other_letters_have_no_case_that_unicode_does_not_give_them(pattern: str) -> None:
    found = taken(pattern, "plain")
    assert found
    assert judged(pattern, found) == found


@pytest.mark.parametrize("pattern", ["(?i)[^k]", "(?i)[^a-z]", "(?i)[^\u03c3]", "(?i)[^\\W]"])
def test_patterns_of_schemas_shut_out_as_much(pattern: str) -> None:
    found = taken(pattern, "schema")
    assert judged(pattern, found) == found


@pytest.mark.parametrize("pattern", ["(?i)\\P{Lu}", "(?i)[^\\p{Lu}]"])
def test_the_opposite_of_a_property_has_no_letter_of_the_other_case(pattern: str) -> None:
    found = set(taken(pattern, "plain"))
    assert not found & set("aAéÉ\u212a")
    assert found >= set("1 \u3042")
