"""Does a constraint start where it is asked to, and survive drafts?"""

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from deepinfer_core.engine.grammar_constraint import Constraint, Trigger
from deepinfer_core.engine.grammar_masks import Grammars
from deepinfer_core.engine.grammar_request import GrammarRequest
from deepinfer_core.engine.rows import RowRequest, RowSettings
from deepinfer_core.errors import EngineError, RequestError, UnsupportedGrammar
from deepinfer_core.interfaces.grammar import CompiledGrammar, GrammarVocabulary
from deepinfer_core.testing.letter_grammar import LetterGrammar

END = 0
VOCABULARY = GrammarVocabulary(pieces=tuple(bytes([byte]) for byte in range(128)), end_ids=(END,))
ALL = set(range(128))


def constraint(
    *texts: str, trigger: Sequence[int] = (), bound: int | None = None, prefix: Sequence[int] = ()
) -> Constraint:
    request = GrammarRequest(
        kind="choice",
        grammar=list(texts),
        trigger_token_ids=list(trigger),
        bound_token_id=bound,
        prefix_token_ids=list(prefix),
    )
    component = LetterGrammar()
    future: Future[CompiledGrammar] = Future()
    future.set_result(component.open(component.compile(request.text, VOCABULARY), VOCABULARY))
    return Constraint(request, future, frozenset({END}))


def masks(one: Constraint, output: bytes, drafts: bytes = b"") -> list[set[int]]:
    """What may come behind the output, and behind each draft in turn."""
    owner: Any = SimpleNamespace(constraint=one, prompt_tokens=2, tokens=[7, 7, *output])
    rows = [
        RowRequest(number, 2 + len(output) + number, RowSettings(), draft=draft)
        for number, draft in enumerate([*drafts, -1])
    ]
    pool: Any = SimpleNamespace(component=LetterGrammar(), vocabulary=VOCABULARY)
    found, broken = Grammars(pool).masked(tuple(rows), [owner] * len(rows))
    for _, failure in broken:
        raise failure
    words = [row.mask.view(np.uint8) for row in found if row.mask is not None]
    return [set(np.flatnonzero(np.unpackbits(w, bitorder="little")).tolist()) for w in words]


def letters(text: str) -> set[int]:
    return set(text.encode())


def test_without_a_trigger_the_first_token_is_constrained() -> None:
    one = constraint("yes", "no")
    assert masks(one, b"") == [letters("yn")]
    assert masks(one, b"n") == [letters("o")]
    assert masks(one, b"no") == [{END}]


def test_a_constraint_that_is_behind_catches_up() -> None:
    assert masks(constraint("yes"), b"ye") == [letters("s")]


def test_a_text_that_has_begun_goes_on_behind_its_beginning() -> None:
    one = constraint("yes", "yet", "no", prefix=b"ye")
    assert one.settle() is None
    assert one.is_settled
    assert masks(one, b"") == [letters("st")]
    assert masks(one, b"s") == [{END}]


def test_a_beginning_that_is_the_whole_text_can_only_end() -> None:
    assert masks(constraint("no", prefix=b"no"), b"") == [{END}]


def test_a_beginning_that_no_text_has_fails_the_request() -> None:
    failure = constraint("yes", prefix=b"yo").settle()
    assert isinstance(failure, UnsupportedGrammar)
    assert "cannot begin" in str(failure)


def test_a_long_beginning_is_followed_a_part_at_a_time() -> None:
    text = "ab" * 200
    one, other = constraint(text + "c", prefix=text.encode()), constraint(text, prefix=b"ab" * 201)
    parts = 0
    while not one.is_settled:
        assert one.settle() is None
        parts += 1
    assert parts == 4
    assert masks(one, b"") == [letters("c")]
    refusals = [other.settle() for _ in range(4)]
    assert [refusal is None for refusal in refusals] == [True, True, True, False]


def test_a_long_beginning_need_not_have_been_followed_before_it_is_used() -> None:
    one = constraint("ab" * 200, prefix=b"ab" * 199)
    assert one.settle() is None
    assert masks(one, b"") == [letters("a")]


def test_a_constraint_that_is_released_wants_no_grammar_any_more() -> None:
    future: Future[CompiledGrammar] = Future()
    Constraint(GrammarRequest(kind="choice", grammar=["a"]), future, frozenset()).release()
    assert future.cancelled()
    settled = constraint("yes")
    settled.release()
    assert masks(settled, b"y") == [letters("e")]


def test_drafts_behind_a_beginning_are_forgotten_again() -> None:
    one = constraint("yes", prefix=b"y")
    assert masks(one, b"", b"es") == [letters("e"), letters("s"), {END}]
    assert masks(one, b"e") == [letters("s")]


def test_asking_twice_gives_the_same() -> None:
    one = constraint("yes")
    assert masks(one, b"y") == masks(one, b"y")


def test_before_the_trigger_all_but_an_end_is_allowed() -> None:
    one = constraint("ok", trigger=b"ab")
    assert masks(one, b"") == [ALL - {END}]
    assert masks(one, b"xa") == [ALL - {END}]
    assert masks(one, b"xab") == [letters("o")]
    assert masks(one, b"xabok") == [{END}]


def test_a_trigger_may_begin_inside_itself() -> None:
    one = constraint("ok", trigger=b"aab")
    assert masks(one, b"aaa") == [ALL - {END}]
    assert masks(one, b"aaab") == [letters("o")]


def test_the_bound_token_forces_the_trigger() -> None:
    one = constraint("ok", trigger=b"ab", bound=ord("!"))
    assert masks(one, b"x") == [ALL - {END}]
    assert masks(one, b"x!") == [letters("a")]
    assert masks(one, b"x!a") == [letters("b")]
    assert masks(one, b"x!ab") == [letters("o")]


def test_the_trigger_counts_without_the_bound_token_too() -> None:
    assert masks(constraint("ok", trigger=b"ab", bound=ord("!")), b"ab") == [letters("o")]


@pytest.mark.parametrize("count", range(6))
def test_each_draft_has_the_mask_behind_it(count: int) -> None:
    one = constraint("hello", "help")
    drafts = b"hello"[:count]
    wanted = [letters("h"), letters("e"), letters("l"), letters("lp"), letters("o"), {END}]
    assert masks(one, b"", drafts) == wanted[: count + 1]
    assert masks(one, b"") == [letters("h")]


def test_behind_a_draft_that_is_not_allowed_nothing_is_masked() -> None:
    one = constraint("hello")
    assert masks(one, b"h", b"exlo") == [letters("e"), letters("l"), ALL, ALL, ALL]
    assert masks(one, b"he") == [letters("l")]


def test_drafts_may_end_the_text() -> None:
    one = constraint("no")
    assert masks(one, b"n", bytes([ord("o"), END, 5])) == [letters("o"), {END}, ALL, ALL]
    assert masks(one, b"n") == [letters("o")]


def test_drafts_may_pull_the_trigger() -> None:
    one = constraint("ok", trigger=b"ab")
    free = ALL - {END}
    assert masks(one, b"a", b"bok") == [free, letters("o"), letters("k"), {END}]
    assert masks(one, b"ax") == [free]


def test_drafts_may_be_bound() -> None:
    one = constraint("ok", trigger=b"ab", bound=ord("!"))
    free = ALL - {END}
    assert masks(one, b"", b"!ab") == [free, letters("a"), letters("b"), letters("o")]
    assert masks(one, b"", b"!x") == [free, letters("a"), ALL]
    assert masks(one, b"z") == [free]


def test_an_output_that_breaks_the_grammar_is_an_error() -> None:
    with pytest.raises(EngineError, match=f"token {ord('x')}"):
        masks(constraint("yes"), b"yx")


def test_a_failure_is_known_only_once_settled() -> None:
    future: Future[CompiledGrammar] = Future()
    one = Constraint(GrammarRequest(kind="choice", grammar=["a"]), future, frozenset())
    assert not one.is_settled
    assert one.settle() is None
    future.set_exception(RequestError("bad"))
    assert one.is_settled
    assert str(one.settle()) == "bad"


@pytest.mark.parametrize("pattern", [b"a", b"ab", b"aa", b"aab", b"abab", b"aabaaab"])
def test_the_tables_find_what_a_search_finds(pattern: bytes) -> None:
    stream = b"aabaabaaabababaabaaabab"
    trigger, matched = Trigger(tuple(pattern)), 0
    for place, token in enumerate(stream):
        matched = trigger.after(matched, token)
        assert (matched == len(pattern)) == stream[: place + 1].endswith(pattern)


BAD = [
    ({"kind": "xml"}, "grammar.kind"),
    ({"kind": "regex", "grammar": {1, 2}}, "no JSON value"),
    ({"kind": "ebnf", "root": 3}, "grammar.root"),
    ({"kind": "regex", "trigger_token_ids": [-1]}, "trigger_token_ids"),
    ({"kind": "regex", "prefix_token_ids": [-1]}, "prefix_token_ids"),
    ({"kind": "regex", "prefix_token_ids": [1], "trigger_token_ids": [2]}, "together"),
    ({"kind": "regex", "bound_token_id": 3}, "without a trigger"),
    ({"kind": "regex", "bound_token_id": -3, "trigger_token_ids": [1]}, "bound_token_id"),
]


@pytest.mark.parametrize(("fields", "message"), BAD)
def test_a_wrong_request_is_refused_by_name(fields: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        GrammarRequest(**fields)
