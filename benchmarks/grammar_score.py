"""How many grammars of the test data does each component get fully right, token by token?

A text is right if it can be produced under the masks and ended behind them (a member), or if not (a
non-member). Members are tried as the tokenizer splits them, non-members also byte by byte. Reads a
folder with ``json_schema.jsonl``, ``regex.jsonl`` and ``ebnf.jsonl``; the tokenizer is that of the
tiny checkpoint, or any ``tokenizer.json``.

    python benchmarks/grammar_score.py FOLDER --component grammar.xgrammar --json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from deepinfer_core.engine.grammar_vocabulary import grammar_vocabulary
from deepinfer_core.engine.tokenizer import Tokenizer, open_tokenizer
from deepinfer_core.errors import RequestError
from deepinfer_core.interfaces.grammar import (
    CompiledGrammar,
    Grammar,
    GrammarText,
    GrammarVocabulary,
)

FILES = ("json_schema", "regex", "ebnf")


@dataclass(slots=True)
class Score:
    """Counts of a category.

    Attributes:
        rows, right: grammars, and those fully right.
        members, allowed: texts that belong, and those that can be produced.
        others, kept_out: texts that do not belong, and those that cannot be produced.
        refused: grammars that were refused though they are right.
    """

    rows: int = 0
    right: int = 0
    members: int = 0
    allowed: int = 0
    others: int = 0
    kept_out: int = 0
    refused: int = 0


@dataclass(slots=True)
class Report:
    """All categories, and the rows that are not right."""

    categories: dict[str, Score] = field(default_factory=lambda: defaultdict(Score))
    wrong: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def total(self) -> Score:
        """The sum."""
        names = Score.__slots__
        sums = {n: sum(getattr(one, n) for one in self.categories.values()) for n in names}
        return Score(**sums)


class Judge:
    """Scores one component with one tokenizer.

    Args:
        component: makes masks.
        tokenizer: splits texts.
        vocabulary: of the tokenizer.
    """

    def __init__(
        self, component: Grammar, tokenizer: Tokenizer, vocabulary: GrammarVocabulary
    ) -> None:
        self.component = component
        self.tokenizer = tokenizer
        self.vocabulary = vocabulary
        self.bytes = {piece[0]: i for i, piece in enumerate(vocabulary.pieces) if len(piece) == 1}

    def produces(self, grammar: CompiledGrammar, ids: list[int]) -> bool:
        """Whether the masks let a text through, and its end behind it."""
        matcher = grammar.matcher()
        mask_RW = np.zeros((1, self.vocabulary.words), dtype=np.int32)
        bits = mask_RW.view(np.uint32)[0]
        try:
            for token in (*ids, self.vocabulary.end_ids[0]):
                matcher.fill_mask(mask_RW, 0)
                if not int(bits[token // 32]) >> (token % 32) & 1 or not matcher.accept(token):
                    return False
        except RequestError:  # a limit of the engine
            return False
        return True

    def row(self, row: dict[str, Any], report: Report) -> None:
        """Score one grammar."""
        score = report.categories[f"{row['kind']}/{row['category'].split('/')[0]}"]
        score.rows += 1
        members = [test["text"] for test in row["tests"] if test["ok"]]
        others = [test["text"] for test in row["tests"] if not test["ok"]]
        score.members += len(members)
        score.others += len(others)
        must_fail = row.get("expect") == "error"
        try:
            compiled = self.component.compile(_grammar(row), self.vocabulary)
            grammar = self.component.open(compiled, self.vocabulary)
        except RequestError as error:
            score.kept_out += len(others)
            score.refused += not must_fail
            self._note(row["id"], must_fail or not members, f"refused: {error}", score, report)
            return
        if must_fail:
            self._note(row["id"], False, "not refused", score, report)
            return
        shut_out = [text for text in members if not self.produces(grammar, self._split(text))]
        let_in = [
            text for text in others if any(self.produces(grammar, x) for x in self._all(text))
        ]
        score.allowed += len(members) - len(shut_out)
        score.kept_out += len(others) - len(let_in)
        what = f"let in {let_in[0]!r}" if let_in else f"shut out {(shut_out or [''])[0]!r}"
        self._note(row["id"], not shut_out and not let_in, what, score, report)

    def _note(self, name: str, is_right: bool, what: str, score: Score, report: Report) -> None:
        score.right += is_right
        if not is_right:
            report.wrong[name] = what

    def _split(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def _all(self, text: str) -> Iterator[list[int]]:
        yield self._split(text)
        yield [self.bytes[byte] for byte in text.encode()]


def _grammar(row: dict[str, Any]) -> GrammarText:
    kind = row["kind"]
    if kind == "json_schema":
        return GrammarText(kind=kind, text=json.dumps(row["schema"]))
    if kind == "regex":
        return GrammarText(kind=kind, text=row["pattern"])
    return GrammarText(kind=kind, text=row["grammar"], root=row["root"])


def score(judge: Judge, folder: Path, kinds: tuple[str, ...] = FILES) -> Report:
    """Score all rows of some files."""
    report, began_s = Report(), time.monotonic()
    for kind in kinds:
        for line in (folder / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines():
            judge.row(json.loads(line), report)
    report.seconds = time.monotonic() - began_s
    return report


def component_of(name: str) -> Grammar:
    """The component of a name, for the CPU."""
    from importlib import import_module

    from deepinfer_core.plugin import BuildContext, ModelNeeds

    module = import_module(f"deepinfer_grammar.engines.{name.removeprefix('grammar.')}_component")
    found: Grammar = module.build(None, BuildContext(device="cpu", needs=ModelNeeds()))
    return found


def scored(
    component: str, folder: Path, checkpoint: Path | None = None, kinds: tuple[str, ...] = FILES
) -> Report:
    """Score a component by name, with the tokenizer of a checkpoint; None: the tiny one."""
    if checkpoint is None:
        from deepinfer_tiny import checkpoint_path

        checkpoint = Path(checkpoint_path())
    tokenizer = open_tokenizer(checkpoint)
    if tokenizer is None:
        raise SystemExit(f"{checkpoint} has no tokenizer.json")
    vocabulary = grammar_vocabulary(tokenizer, end_ids=_end_ids(checkpoint))
    return score(Judge(component_of(component), tokenizer, vocabulary), folder, kinds)


def main() -> int:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--component", default="grammar.xgrammar")
    parser.add_argument(
        "--tokenizer", type=Path, help="folder of a checkpoint; default: the tiny one"
    )
    parser.add_argument("--kinds", default=",".join(FILES))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    report = scored(args.component, args.folder, args.tokenizer, tuple(args.kinds.split(",")))
    if args.json:
        named = {name: _counts(one) for name, one in sorted(report.categories.items())}
        print(
            json.dumps(
                {"component": args.component, "categories": named, "wrong": report.wrong}, indent=1
            )
        )
        return 0
    print("| category | rows | right | members allowed | others kept out | refused |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, one in [*sorted(report.categories.items()), ("all", report.total())]:
        print(
            f"| {name} | {one.rows} | {one.right} | {one.allowed} of {one.members} | "
            f"{one.kept_out} of {one.others} | {one.refused} |"
        )
    return 0


def _counts(one: Score) -> dict[str, int]:
    return {name: getattr(one, name) for name in Score.__slots__}


def _end_ids(folder: Path) -> tuple[int, ...]:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return (int(config["eos_token_id"]),)


if __name__ == "__main__":
    sys.exit(main())
