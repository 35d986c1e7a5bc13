"""Are the masks of a step made together, and does each sequence fail alone?"""

import logging
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from deepinfer_core.engine import grammar_pace
from deepinfer_core.engine.grammar_constraint import Constraint
from deepinfer_core.engine.grammar_masks import Grammars
from deepinfer_core.engine.grammar_pace import ALONE_S, EXCESS_S, LEAST_S, LONG_S, MASK_S
from deepinfer_core.engine.grammar_request import GrammarRequest
from deepinfer_core.engine.rows import RowRequest, RowSettings
from deepinfer_core.errors import UnsupportedGrammar
from deepinfer_core.interfaces.grammar import CompiledGrammar, GrammarMatcher, GrammarVocabulary
from deepinfer_core.testing.letter_grammar import LetterGrammar

END = 0
VOCABULARY = GrammarVocabulary(pieces=tuple(bytes([byte]) for byte in range(128)), end_ids=(END,))


class Clock:
    """Time of the wall and of the processor, which passes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_s = self.processor_s = 0.0
        source = SimpleNamespace(
            perf_counter=lambda: self.wall_s, thread_time=lambda: self.processor_s
        )
        monkeypatch.setattr(grammar_pace, "time", source)

    def work(self, elapsed_s: float) -> None:
        self.wall_s += elapsed_s
        self.processor_s += elapsed_s


class Slow(GrammarMatcher):
    """Takes so long for each token where it is told to."""

    def __init__(self, work: Callable[[float], None], where: str, took_s: float) -> None:
        self.work = work
        self.where = where
        self.took_s = took_s

    def _at(self, where: str) -> None:
        if where == self.where:
            self.work(self.took_s)

    def accept(self, token_id: int) -> bool:
        self._at("accept")
        return True

    def rollback(self, count: int) -> None:
        pass

    def fill_mask(self, mask_RW: npt.NDArray[np.int32], row: int) -> None:
        self._at("fill_mask")
        mask_RW[row] = -1


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


def settled(compiled: Any) -> Future[CompiledGrammar]:
    future: Future[CompiledGrammar] = Future()
    future.set_result(compiled)
    return future


def sequence(compiled: Any, output: bytes, prefix: tuple[int, ...] = ()) -> Any:
    request = GrammarRequest(kind="choice", grammar=["x"], prefix_token_ids=prefix)
    constraint = Constraint(request, settled(compiled), frozenset({END}))
    return SimpleNamespace(constraint=constraint, prompt_tokens=1, tokens=[7, *output])


def of(text: str, output: bytes = b"") -> Any:
    component = LetterGrammar()
    request = GrammarRequest(kind="choice", grammar=[text]).text
    return sequence(component.open(component.compile(request, VOCABULARY), VOCABULARY), output)


def grammars_of(component: LetterGrammar) -> Grammars:
    pool: Any = SimpleNamespace(component=component, vocabulary=VOCABULARY)
    return Grammars(pool)


def masked(
    made_by: LetterGrammar | Grammars, them: Sequence[tuple[Any, bytes]]
) -> tuple[list[list[int]], list[tuple[Any, Any]]]:
    """What each row allows, of sequences with their drafts; and what broke."""
    rows, owners = [], []
    for owner, drafts in them:
        for number, draft in enumerate([*drafts, -1]):
            position = len(owner.tokens) + number
            rows.append(RowRequest(len(rows), position, RowSettings(), draft=draft))
            owners.append(owner)
    grammars = made_by if isinstance(made_by, Grammars) else grammars_of(made_by)
    found, broken = grammars.masked(tuple(rows), owners)
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


def test_what_a_library_says_of_a_failure_is_in_the_log_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> GrammarMatcher:
        raise UnsupportedGrammar("too ambiguous") from RuntimeError("panic: row 7")

    bad = sequence(SimpleNamespace(matcher=fail), b"")
    with caplog.at_level(logging.DEBUG, "deepinfer"):
        _, [(_, failure)] = masked(Together(), [(bad, b"")])
    assert str(failure) == "too ambiguous"
    assert "panic: row 7" in caplog.text


def test_what_was_drawn_against_the_grammar_ends_its_sequence_alone() -> None:
    bad = of("abc", b"x")
    found, broken = masked(Together(), [(of("abc"), b""), (bad, b"")])
    assert [(owner, str(failure)[:10]) for owner, failure in broken] == [(bad, "token 120 ")]
    assert found == [[ord("a")], list(range(128))]


@pytest.mark.parametrize("where", ["accept", "fill_mask"])
def test_a_grammar_that_takes_long_for_each_token_ends_its_sequence_alone(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    clock = Clock(monkeypatch)
    bad = sequence(SimpleNamespace(matcher=lambda: Slow(clock.work, where, 2 * LONG_S)), b"k")
    them = [(of("abcd", b"a"), b""), (bad, b""), (of("wxyz", b"w"), b"")]
    grammars = grammars_of(Together())
    for output in b"bxc":
        _, broken = masked(grammars, them)
        if broken:
            break
        bad.tokens.append(output)
    [(owner, failure)] = broken
    assert owner is bad
    assert isinstance(failure, UnsupportedGrammar)
    assert "0.50 s for one token, over 0.25 s" in str(failure)
    for good, _ in (them[0], them[2]):
        good.tokens.append({b"a": ord("b"), b"w": ord("x")}[bytes(good.tokens[1:2])])
    found, broken = masked(grammars, [them[0], them[2]])
    assert not broken
    assert found == [[ord("c")], [ord("y")]]


@pytest.mark.parametrize("where", ["accept", "fill_mask"])
def test_a_grammar_that_waits_for_the_processor_is_not_to_blame(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    clock = Clock(monkeypatch)

    def wait(elapsed_s: float) -> None:
        clock.wall_s += elapsed_s

    one = sequence(SimpleNamespace(matcher=lambda: Slow(wait, where, 2 * LONG_S)), b"k")
    grammars = grammars_of(Together())
    for _ in range(4):
        assert not masked(grammars, [(one, b"")])[1]
        one.tokens.append(ord("k"))


def test_one_that_took_long_once_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    matcher = Slow(clock.work, "fill_mask", 2 * LONG_S)
    one, grammars = (
        sequence(SimpleNamespace(matcher=lambda: matcher), b"k"),
        grammars_of(Together()),
    )
    for took_s in (2 * LONG_S, 0.9 * ALONE_S) * 20:
        matcher.took_s = took_s
        assert not masked(grammars, [(one, b"")])[1]
        one.tokens.append(ord("k"))


def test_drafts_that_take_long_to_follow_end_their_sequence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    one = sequence(SimpleNamespace(matcher=lambda: Slow(clock.work, "accept", 2 * LONG_S)), b"")
    one.drafts, one.sequence_id = SimpleNamespace(ids=(5, 6)), 1
    grammars = grammars_of(Together())
    grammars.cut_drafts([one], "match")
    assert not grammars.failed([one])
    grammars.cut_drafts([one], "match")
    [(owner, failure)] = grammars.failed([one])
    assert owner is one
    assert "holds up other requests" in str(failure)


def test_a_matcher_that_breaks_on_a_beginning_ends_its_sequence_alone() -> None:
    one = sequence(SimpleNamespace(matcher=lambda: Broken("accept")), b"", prefix=(5,))
    one.sequence_id = 1
    [(_, failure)] = grammars_of(Together()).failed([one])
    assert "a bug in accept" in str(failure)


def test_drafts_of_a_step_that_take_long_end_their_sequence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, grammars = Clock(monkeypatch), grammars_of(Together())
    bad = sequence(SimpleNamespace(matcher=lambda: Slow(clock.work, "accept", 2 * LONG_S)), b"")
    good = of("abc", b"a")
    assert not masked(grammars, [(bad, b"x"), (good, b"b")])[1]
    found, [(owner, _)] = masked(grammars, [(bad, b"x"), (good, b"b")])
    assert owner is bad
    assert found[2:] == [[ord("b")], [ord("c")]]


@pytest.mark.parametrize("where", ["accept", "fill_mask"])
@pytest.mark.parametrize(("is_alone", "budget_s"), [(True, ALONE_S), (False, LEAST_S)])
def test_a_grammar_that_takes_rather_long_for_all_tokens_ends_its_sequence(
    monkeypatch: pytest.MonkeyPatch, where: str, is_alone: bool, budget_s: float
) -> None:
    """What each token takes over the budget adds up; the first step is not timed one by one."""
    clock, took_s = Clock(monkeypatch), 2 * ALONE_S
    one = sequence(SimpleNamespace(matcher=lambda: Slow(clock.work, where, took_s)), b"")
    grammars, broken = grammars_of(Together()), []
    them = [(one, b""), *[(of("abc"), b"")] * (not is_alone)]
    count = math.floor(EXCESS_S / (took_s - budget_s - MASK_S)) + 2
    while not broken and len(one.tokens) < 2 * count:
        one.tokens.append(ord("k"))
        _, broken = masked(grammars, them)
    [(owner, failure)] = broken
    assert owner is one
    assert len(one.tokens) - 1 == count
    said = f"takes 0.100 s in one step, where all grammars together have {budget_s:.3f} s more"
    assert said in str(failure)
