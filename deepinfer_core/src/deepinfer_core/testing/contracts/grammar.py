"""Does a component for grammars keep the contract of ``interfaces.grammar``?"""

from __future__ import annotations

import json
import pickle
from typing import ClassVar

import numpy as np
import pytest

from deepinfer_core.errors import UnsupportedGrammar
from deepinfer_core.interfaces.grammar import (
    CompiledGrammar,
    Grammar,
    GrammarKind,
    GrammarText,
    GrammarVocabulary,
)
from deepinfer_core.testing.contracts.grammar_texts import (
    FAULTS,
    GRAMMAR_VOCABULARY,
    TEXTS,
    UNSATISFIABLE,
    allowed,
    encoded,
    mask_bits,
    produces,
)

__all__ = ["GrammarContract"]

_V = GRAMMAR_VOCABULARY
_CALL = _V.controls["<call>"]


class GrammarContract:
    """What every component of kind ``grammar`` must do.

    Attributes:
        skipped_kinds: kinds that the component says it does not take.
    """

    skipped_kinds: ClassVar[frozenset[str]] = frozenset()

    @pytest.fixture
    def component(self) -> Grammar:
        """The component under test; each subclass provides it."""
        raise NotImplementedError(f"{type(self).__name__} must define the fixture 'component'")

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a test once for each kind that it concerns."""
        tables: dict[str, dict[str, object]] = {
            "kind": dict(TEXTS),
            "faulty_kind": dict(FAULTS),
            "empty_kind": dict(UNSATISFIABLE),
        }
        for argument, table in tables.items():
            if argument in metafunc.fixturenames:
                kinds = [name for name in table if name not in self.skipped_kinds]
                metafunc.parametrize(argument, kinds)

    def compiled(self, component: Grammar, grammar: GrammarText) -> CompiledGrammar:
        """A grammar ready for use."""
        return component.open(component.compile(grammar, _V), _V)

    def test_it_says_which_kinds_it_takes(self, component: Grammar) -> None:
        """And takes all but those that the suite was told to skip."""
        assert component.kinds == frozenset(TEXTS) - self.skipped_kinds

    def test_members_can_be_produced_and_ended(self, component: Grammar, kind: str) -> None:
        """In long tokens and in single bytes."""
        grammar = self.compiled(component, TEXTS[kind][0])
        for text in TEXTS[kind][1]:
            assert produces(grammar, encoded(text)), text
            assert produces(grammar, encoded(text, by_byte=True)), text

    def test_others_cannot(self, component: Grammar, kind: str) -> None:
        """However they are split."""
        grammar = self.compiled(component, TEXTS[kind][0])
        for text in TEXTS[kind][2]:
            assert not produces(grammar, encoded(text)), text
            assert not produces(grammar, encoded(text, by_byte=True)), text

    def test_masks_and_acceptance_agree(self, component: Grammar, kind: str) -> None:
        """At every place of every member, for every token."""
        grammar = self.compiled(component, TEXTS[kind][0])
        matcher = grammar.matcher()
        for token in encoded(TEXTS[kind][1][-1]):
            mask = allowed(matcher)
            for candidate in range(len(_V.pieces)):
                assert matcher.accept(candidate) == (candidate in mask), candidate
                matcher.rollback(candidate in mask)
            assert matcher.accept(token)

    def test_control_tokens_are_never_allowed(self, component: Grammar, kind: str) -> None:
        """Nor are ids that stand for nothing."""
        grammar = self.compiled(component, TEXTS[kind][0])
        silent = {token for token, piece in enumerate(_V.pieces) if not piece} - set(_V.end_ids)
        for text in TEXTS[kind][1]:
            matcher = grammar.matcher()
            for token in encoded(text, by_byte=True):
                assert not allowed(matcher) & silent
                assert matcher.accept(token)
            assert not allowed(matcher) & silent

    def test_masks_are_clean_behind_the_vocabulary(self, component: Grammar, kind: str) -> None:
        """Bits of ids that do not exist are zero, wherever a text is; also in batches."""
        grammar = self.compiled(component, TEXTS[kind][0])
        for text in TEXTS[kind][1]:
            matcher = grammar.matcher()
            for token in encoded(text, by_byte=True):
                assert max(allowed(matcher)) < len(_V.pieces)
                both = np.zeros((2, _V.words), dtype=np.int32)
                component.fill_masks([matcher, grammar.matcher()], both, (0, 1))
                assert mask_bits(both[0]) == allowed(matcher)
                assert mask_bits(both[1]) == allowed(grammar.matcher())
                assert matcher.accept(token)

    def test_an_end_is_allowed_where_the_text_is_whole(self, component: Grammar, kind: str) -> None:
        """All end tokens, and nowhere else."""
        grammar = self.compiled(component, TEXTS[kind][0])
        ends, others = set(_V.end_ids), TEXTS[kind][2]
        for text in TEXTS[kind][1]:
            matcher = grammar.matcher()
            assert matcher.replay(encoded(text))
            assert allowed(matcher) & ends == ends
        for text in others:
            matcher = grammar.matcher()
            if matcher.replay(encoded(text)):
                assert not allowed(matcher) & ends

    def test_behind_the_end_nothing_is_taken(self, component: Grammar, kind: str) -> None:
        """And the mask allows all."""
        grammar = self.compiled(component, TEXTS[kind][0])
        matcher = grammar.matcher()
        assert matcher.replay(encoded(TEXTS[kind][1][0]))
        assert matcher.accept(_V.end_ids[1])
        assert allowed(matcher) >= set(range(len(_V.pieces)))
        assert not matcher.accept(_V.end_ids[0])
        assert not matcher.accept(encoded("a")[0])

    def test_a_refused_token_changes_nothing(self, component: Grammar, kind: str) -> None:
        """The matcher goes on."""
        grammar = self.compiled(component, TEXTS[kind][0])
        matcher = grammar.matcher()
        for token in encoded(TEXTS[kind][1][-1]):
            before = allowed(matcher)
            refused = next(t for t in range(len(_V.pieces)) if t not in before)
            assert not matcher.accept(refused)
            assert allowed(matcher) == before
            assert matcher.accept(token)

    def test_rollback_undoes_any_number_of_tokens(self, component: Grammar, kind: str) -> None:
        """Also an end; and what comes then is what came before."""
        grammar = self.compiled(component, TEXTS[kind][0])
        ids = [*encoded(TEXTS[kind][1][-1], by_byte=True), _V.end_ids[0]]
        for count in range(len(ids) + 1):
            matcher = grammar.matcher()
            masks = []
            for token in ids:
                masks.append(allowed(matcher))
                assert matcher.accept(token)
            matcher.rollback(count)
            for token, mask in zip(ids[len(ids) - count :], masks[len(ids) - count :], strict=True):
                assert allowed(matcher) == mask
                assert matcher.accept(token)
            assert not matcher.accept(_V.end_ids[0])

    def test_matchers_of_one_grammar_are_apart(self, component: Grammar) -> None:
        """Each begins at the beginning."""
        grammar = self.compiled(component, GrammarText(kind="regex", text="ab"))
        first = grammar.matcher()
        assert first.accept(ord("a"))
        assert ord("a") in allowed(grammar.matcher())

    def test_filling_many_is_filling_each(self, component: Grammar) -> None:
        """Rows in any order; other rows stay as they are; ended ones allow all."""
        grammars = [self.compiled(component, TEXTS[k][0]) for k in ("regex", "choice")]
        matchers = [grammar.matcher() for grammar in grammars for _ in range(2)]
        assert matchers[1].accept(encoded("ab")[0])
        assert matchers[3].replay((*encoded("ab"), _V.end_ids[0]))
        mask_RW = np.full((6, _V.words), 0x5A5A5A5A, dtype=np.int32)
        rows = (4, 0, 3, 1)
        component.fill_masks(matchers, mask_RW, rows)
        for matcher, row in zip(matchers, rows, strict=True):
            alone = np.zeros((1, _V.words), dtype=np.int32)
            matcher.fill_mask(alone, 0)
            assert (mask_RW[row] == alone[0]).all()
        assert (mask_RW[[2, 5]] == 0x5A5A5A5A).all()

    def test_a_grammar_names_control_tokens(self, component: Grammar) -> None:
        """The token itself is allowed there, its spelling in text is not."""
        if "structural_tag" in self.skipped_kinds:
            pytest.skip("no structural tags; a component that names the kind runs this")
        call = {"type": "token", "token": "<call>"}
        tag = {"type": "sequence", "elements": [{"type": "any_text"}, call, call]}
        text = json.dumps({"type": "structural_tag", "format": tag})
        grammar = self.compiled(component, GrammarText(kind="structural_tag", text=text))
        assert produces(grammar, [*encoded("ab é"), _CALL, _CALL])
        assert produces(grammar, [_CALL, _CALL])
        assert not produces(grammar, [_CALL, *encoded("a"), _CALL])
        assert not produces(grammar, encoded("<call><call>"))
        assert _V.controls["<think>"] not in allowed(grammar.matcher())

    def test_a_compiled_grammar_says_how_much_memory_it_holds(self, component: Grammar) -> None:
        """More for more: the engine keeps grammars up to a sum of these."""
        texts = [json.dumps(["a"]), json.dumps([chr(97 + i % 26) * i for i in range(1, 400)])]
        kind: GrammarKind = "choice"
        small, large = (self.compiled(component, GrammarText(kind=kind, text=t)) for t in texts)
        assert 0 < small.size_bytes < large.size_bytes

    def test_a_compiled_grammar_is_the_same_everywhere(self, component: Grammar, kind: str) -> None:
        """Equal arguments give equal bytes, which go through a pickle."""
        grammar, members, _ = TEXTS[kind]
        first, second = (component.compile(grammar, _V) for _ in range(2))
        assert first == second
        vocabulary = pickle.loads(pickle.dumps(_V))
        opened = component.open(pickle.loads(pickle.dumps(first)), vocabulary)
        assert produces(opened, encoded(members[0]))

    def test_a_fault_is_refused_with_its_place(self, component: Grammar, faulty_kind: str) -> None:
        """As the request's own error."""
        grammar, place = FAULTS[faulty_kind]
        with pytest.raises(UnsupportedGrammar, match=place):
            component.compile(grammar, _V)

    def test_a_grammar_without_any_text_is_refused(
        self, component: Grammar, empty_kind: str
    ) -> None:
        """It could only ever end in an error."""
        with pytest.raises(UnsupportedGrammar, match="no text"):
            component.compile(UNSATISFIABLE[empty_kind], _V)

    def test_a_grammar_that_no_token_can_begin_is_refused(self, component: Grammar) -> None:
        """Where the vocabulary lacks its characters, or has them in other words only."""
        for pieces in (b"a", b"b", b""), (b"xa", b"b", b""):
            poor = GrammarVocabulary(pieces=pieces, end_ids=(2,))
            with pytest.raises(UnsupportedGrammar, match="no token"):
                component.open(component.compile(GrammarText(kind="regex", text="xyz"), poor), poor)

    def test_the_start_rule_may_refer_to_itself(self, component: Grammar) -> None:
        """From the left, from the right and from the middle."""
        for rule in ('root "a" | "b"', '"a" root | "b"', '"a" root "a" | "b"'):
            text: GrammarKind = "ebnf"
            grammar = self.compiled(component, GrammarText(kind=text, text=f"root ::= {rule}"))
            texts = {'root "a" | "b"': "baa", '"a" root | "b"': "aab"}
            assert produces(grammar, encoded(texts.get(rule, "aabaa")))
            assert not produces(grammar, encoded("a"))
