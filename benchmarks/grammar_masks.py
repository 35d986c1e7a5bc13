"""How long does a mask take, beside raw xgrammar on the same text in the same run?

The peer compiles the same grammar with its own reader and fills its masks itself. Times are of
one step, a mask for each of B requests, averaged over the tokens of a text; the best of several
passes of each, taken in turns.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xgrammar
from deepinfer_core.engine.grammar_vocabulary import grammar_vocabulary
from deepinfer_core.engine.tokenizer import open_tokenizer
from deepinfer_core.interfaces.grammar import GrammarText
from deepinfer_tiny import checkpoint_path
from grammar_score import component_of
from record import figure, options, write

PASSES = 15
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


def microseconds(
    matchers: list[Any],
    ids: list[int],
    fill: Callable[[list[Any]], None],
    accept: Callable[[Any, int], bool],
) -> float:
    """Mean time of filling all masks of a step."""
    total = 0.0
    for token in ids:
        began = time.perf_counter()
        fill(matchers)
        total += time.perf_counter() - began
        for one in matchers:
            if not accept(one, token):
                raise SystemExit("the text does not belong to the grammar")
    return 1e6 * total / len(ids)


def main() -> None:
    """Measure and store."""
    args = options(__doc__).parse_args()
    tokenizer = open_tokenizer(Path(checkpoint_path()))
    assert tokenizer is not None
    vocabulary = grammar_vocabulary(tokenizer, end_ids=[4078])
    component = component_of("grammar.xgrammar")
    pieces = [b"" if t in vocabulary.end_ids else p for t, p in enumerate(vocabulary.pieces)]
    info = xgrammar.TokenizerInfo(
        pieces, vocab_type=xgrammar.VocabType.RAW, vocab_size=len(pieces), stop_token_ids=[4078]
    )
    raw = xgrammar.GrammarCompiler(info, max_threads=1)
    figures = []
    for name, (grammar, compile_raw, text) in cases(raw).items():
        ours = component.open(component.compile(grammar, vocabulary), vocabulary)
        peer, ids = compile_raw(), tokenizer.encode(text)
        for batch in (1, 64):
            mask_RW = np.zeros((batch, vocabulary.words), dtype=np.int32)
            rows = list(range(batch))
            many = xgrammar.BatchGrammarMatcher(max_threads=1)

            def fill_peer(them: list[Any], mask_RW: Any = mask_RW, many: Any = many) -> None:
                if len(them) == 1:
                    them[0].fill_next_token_bitmask(mask_RW, 0)
                else:
                    many.batch_fill_next_token_bitmask(them, mask_RW)

            def fill_ours(us: list[Any], mask_RW: Any = mask_RW, rows: Any = rows) -> None:
                component.fill_masks(us, mask_RW, rows)

            best = [float("inf")] * 2
            for _ in range(PASSES):
                mine = [ours.matcher() for _ in rows]
                theirs = [xgrammar.GrammarMatcher(peer) for _ in rows]
                best[0] = min(best[0], microseconds(mine, ids, fill_ours, lambda m, t: m.accept(t)))
                best[1] = min(
                    best[1], microseconds(theirs, ids, fill_peer, lambda m, t: m.accept_token(t))
                )
            figures.append(
                figure(
                    f"grammar mask, {name}, batch {batch}",
                    round(best[0], 2),
                    "us",
                    peer={"name": "raw xgrammar 0.2.9", "value": round(best[1], 2)},
                    ratio=round(best[0] / best[1], 3),
                )
            )
    write("grammar_masks.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
