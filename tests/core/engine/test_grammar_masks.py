"""Are the masks of a step made together, and does each sequence fail alone?"""

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from deepinfer_core.engine.grammar_constraint import Constraint
from deepinfer_core.engine.grammar_masks import Grammars
from deepinfer_core.engine.grammar_request import GrammarRequest
from deepinfer_core.engine.rows import RowRequest, RowSettings
from deepinfer_core.interfaces.grammar import CompiledGrammar, GrammarMatcher, GrammarVocabulary
from deepinfer_core.testing.letter_grammar import LetterGrammar

END = 0
VOCABULARY = GrammarVocabulary(pieces=tuple(bytes([byte]) for byte in range(128)), end_ids=(END,))


class Together(LetterGrammar):
    """Notes how many rows are filled at once."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def fill_masks(
        self,
        matchers: Sequence[GrammarMatcher],
        mask_RW: npt.NDArray[np.int32],
        rows: Sequence[int],
    ) -> None:
        self.calls.append(len(matchers))
        super().fill_masks(matchers, mask_RW, rows)


class Broken(GrammarMatcher):
    """Fails where it is told to."""

    def __init__(self, where: str) -> None:
        self.where = where

    def _at(self, where: str) -> None:
        if where == self.where:
            raise ValueError(f"a bug in {where}")

    def accept(self, token_id: int) -> bool:
        self._at("accept")
        return True

    def rollback(self, count: int) -> None:
        self._at("rollback")

    def fill_mask(self, mask_RW: npt.NDArray[np.int32], row: int) -> None:
        self._at("fill_mask")

    can_end = is_terminated = property(lambda self: False)

    def fork(self) -> "Broken":
        return self


def settled(compiled: Any) -> Future[CompiledGrammar]:
    future: Future[CompiledGrammar] = Future()
    future.set_result(compiled)
    return future


def sequence(compiled: Any, output: bytes) -> Any:
    request = GrammarRequest(kind="choice", grammar=["x"])
    constraint = Constraint(request, settled(compiled), frozenset({END}))
    return SimpleNamespace(constraint=constraint, prompt_tokens=1, tokens=[7, *output])


def of(text: str, output: bytes = b"") -> Any:
    component = LetterGrammar()
    request = GrammarRequest(kind="choice", grammar=[text]).text
    return sequence(component.open(component.compile(request, VOCABULARY), VOCABULARY), output)


def masked(
    component: LetterGrammar, them: Sequence[tuple[Any, bytes]]
) -> tuple[list[list[int]], list[tuple[Any, Any]]]:
    """What each row allows, of sequences with their drafts; and what broke."""
    rows, owners = [], []
    for owner, drafts in them:
        for number, draft in enumerate([*drafts, -1]):
            position = len(owner.tokens) + number
            rows.append(RowRequest(len(rows), position, RowSettings(), draft=draft))
            owners.append(owner)
    pool: Any = SimpleNamespace(component=component, vocabulary=VOCABULARY)
    found, broken = Grammars(pool).masked(tuple(rows), owners)
    assert [row[:-1] for row in found] == [row[:-1] for row in rows]
    bits = [np.unpackbits(row.mask.view(np.uint8), bitorder="little") for row in found]  # type: ignore[union-attr]
    return [np.flatnonzero(one).tolist() for one in bits], broken


def test_rows_of_all_sequences_are_filled_in_one_call_a_draft() -> None:
    component = Together()
    them = [(of("abc"), b"ab"), (of("xyz", b"x"), b""), (of("pqr", b"p"), b"q")]
    found, broken = masked(component, them)
    assert component.calls == [3, 2, 1]
    assert found == [[ord(letter)] for letter in "abcyqr"]
    assert not broken
    assert masked(component, [(one, b"") for one, _ in them])[0] == [[ord(c)] for c in "ayq"]


@pytest.mark.parametrize("where", ["accept", "fill_mask", "rollback"])
def test_a_matcher_that_breaks_ends_its_sequence_alone(where: str) -> None:
    bad = sequence(SimpleNamespace(matcher=lambda: Broken(where)), b"k")
    good = of("abc", b"a")
    found, broken = masked(Together(), [(of("xyz"), b"x"), (bad, b"m"), (good, b"b")])
    [(owner, failure)] = broken
    assert owner is bad
    assert f"ValueError: a bug in {where}" in str(failure)
    everything = list(range(128))
    assert found == [[ord("x")], [ord("y")], everything, everything, [ord("b")], [ord("c")]]


def test_a_grammar_that_cannot_be_had_ends_its_sequence_alone() -> None:
    def fail() -> GrammarMatcher:
        raise ValueError("no more room")

    bad = sequence(SimpleNamespace(matcher=fail), b"")
    found, broken = masked(Together(), [(bad, b""), (of("abc"), b"")])
    assert [owner for owner, _ in broken] == [bad]
    assert found[1] == [ord("a")]


def test_what_was_drawn_against_the_grammar_ends_its_sequence_alone() -> None:
    bad = of("abc", b"x")
    found, broken = masked(Together(), [(of("abc"), b""), (bad, b"")])
    assert [(owner, str(failure)[:10]) for owner, failure in broken] == [(bad, "token 120 ")]
    assert found == [[ord("a")], list(range(128))]
