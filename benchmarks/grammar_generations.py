"""Does everything that the tiny checkpoint writes under a grammar belong to it?

Draws at temperature 1, many answers for each kind of grammar, and asks other judges than the ones
that made the masks: jsonschema for JSON, ``re`` for regular expressions, an Earley recogniser over
characters for EBNF; structural tags are taken apart at their control tokens, and each part goes to
the judge of its kind. Answers that were cut by their number of tokens are counted as cut.

    python benchmarks/grammar_generations.py --each 1000
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from typing import Any

from deepinfer_core.config import load_settings
from earley import recognises
from record import figure, options, write

from deepinfer_core import LLM, Completion, SamplingParams

SCHEMAS: tuple[dict[str, Any], ...] = (
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 24},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "likes": {"type": "array", "items": {"enum": ["red", "blue", "cake"]}, "maxItems": 3},
        },
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    {
        "oneOf": [
            {"properties": {"kind": {"const": "cat"}, "lives": {"multipleOf": 3, "maximum": 9}},
             "required": ["kind", "lives"], "additionalProperties": False, "type": "object"},
            {"properties": {"kind": {"const": "dog"}, "name": {"pattern": "^[A-Z][a-z]{2,8}$"}},
             "required": ["kind", "name"], "additionalProperties": False, "type": "object"},
        ]
    },
    {"type": "array", "items": {"not": {"type": ["object", "array", "string"]}}, "maxItems": 6},
)  # fmt: skip
PATTERNS = (
    r"[A-Z][a-z]{2,9}( [a-z]{2,9}){1,4}\.",
    r"(19|20)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])",
    r"(the|a) (big|small|red) (dog|cat|bird)s? (ran|sat|slept)( away)?!",
)
GRAMMARS = (
    'root ::= name " = " sum ";"\nname ::= [a-z]{1,3}\nsum ::= term | sum ("+" | "-") term\n'
    'term ::= [0-9]{1,2} | "(" sum ")"\n',
    'root ::= "- " word ("\\n- " word){0,4}\nword ::= [a-z]{2,8}\n',
    'root ::= "a" root "b" | "c" | ""\n',
)
CHOICES = (
    ["yes", "no", "perhaps", "perhaps not"],
    ["the cat", "the cat sat", "the cat sat on the mat", "a dog"],
    ["\u00e9t\u00e9", "\u65e5\u672c", "\U0001f600", '"quoted"', ""],
)
ANSWER = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "why": {"type": "string", "maxLength": 20}},
    "required": ["ok"],
    "additionalProperties": False,
}
Part = tuple[str, Any]
PARTS: tuple[tuple[Part, ...], ...] = (
    (("token", "<think>"), ("regex", r"[a-z ]{3,30}\."), ("token", "</think>"),
     ("json_schema", ANSWER)),
    (("regex", r"[A-Z][a-z]{2,9}: "), ("token", "<\uff5cbox\uff5c>"), ("regex", "[0-9]{1,3}"),
     ("token", "<\uff5c/box\uff5c>")),
    (("ebnf", GRAMMARS[1]), ("token", "</think>"), ("regex", r"(yes|no)")),
)  # fmt: skip
"""Formats of structural tags: texts of a kind, and the control tokens between them."""
_FIELDS = {"json_schema": "json_schema", "regex": "pattern", "ebnf": "grammar", "token": "token"}
_TYPES = {"ebnf": "grammar"}


def tag_of(parts: tuple[Part, ...]) -> dict[str, Any]:
    """The structural tag of a sequence of parts."""
    elements = [{"type": _TYPES.get(kind, kind), _FIELDS[kind]: value} for kind, value in parts]
    return {"type": "structural_tag", "format": {"type": "sequence", "elements": elements}}


KINDS: dict[str, tuple[Any, ...]] = {
    "json_schema": SCHEMAS,
    "json_object": ("",),
    "regex": PATTERNS,
    "ebnf": GRAMMARS,
    "choice": CHOICES,
    "structural_tag": tuple(tag_of(parts) for parts in PARTS),
}
PROMPTS = ("Once upon a time", "Tom has a", "The answer is:", "One day, a little")


def text_judge(kind: str, grammar: Any) -> Callable[[str], bool]:
    """What decides whether a text belongs, independently of the masks."""
    match kind:
        case "json_schema":
            import jsonschema

            validator = jsonschema.Draft202012Validator(grammar)
            return lambda text: bool(validator.is_valid(json.loads(text)))
        case "json_object":
            return lambda text: isinstance(json.loads(text), dict)
        case "regex":
            pattern = re.compile(grammar)
            return lambda text: pattern.fullmatch(text) is not None
        case "choice":
            return lambda text: text in grammar
    return lambda text: recognises(grammar, "root", text)


def judge_of(llm: LLM, kind: str, grammar: Any) -> Callable[[Completion], bool]:
    """What decides whether an answer belongs."""
    if kind != "structural_tag":
        belongs = text_judge(kind, grammar)
        return lambda answer: belongs(answer.text)
    assert llm.tokenizer is not None
    tokenizer, parts = llm.tokenizer, PARTS[KINDS[kind].index(grammar)]
    names = {token: name for name, token in tokenizer.added.items()}

    def is_right(answer: Completion) -> bool:
        found: list[Part] = []
        ordinary: list[int] = []
        for token in answer.token_ids:
            if token not in names:
                ordinary.append(token)
                continue
            if ordinary:
                found.append(("text", tokenizer.decode(ordinary)))
            found.append(("token", names[token]))
            ordinary = []
        if len(found) != len(parts) + 1 or ordinary:
            return False  # behind the last part stands the token that ends the answer
        return all(
            one == part or (one[0] == "text" and text_judge(*part)(one[1]))
            for one, part in zip(found, parts, strict=False)
        )

    return is_right


def run(llm: LLM, kind: str, grammars: tuple[Any, ...], each: int, most: int) -> dict[str, Any]:
    """Write ``each`` answers, shared out among the grammars, and judge them."""
    found = {"answers": 0, "whole": 0, "cut": 0, "wrong": 0, "failed": 0}
    examples: list[str] = []
    for number, grammar in enumerate(grammars):
        judge = judge_of(llm, kind, grammar)
        count = each // len(grammars) + (number < each % len(grammars))
        asked = {"kind": kind, "grammar": grammar}
        params = [
            SamplingParams(max_tokens=most, temperature=1.0, seed=seed, grammar=asked)
            for seed in range(count)
        ]
        prompts = [PROMPTS[seed % len(PROMPTS)] for seed in range(count)]
        for answer in llm.generate(prompts, params):
            found["answers"] += 1
            if answer.finish_reason == "length":
                found["cut"] += 1
            elif answer.finish_reason != "stop":
                found["failed"] += 1
                examples.append(str(answer.error))
            elif judge(answer):
                found["whole"] += 1
            else:
                found["wrong"] += 1
                examples.append(answer.text)
    return {"kind": kind, **found, "examples": examples[:5]}


def main() -> int:
    """Print figures; 1 if an answer that ended does not belong to its grammar."""
    parser = options(__doc__)
    parser.add_argument("--each", type=int, default=1000, help="answers of each kind")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--component", default="grammar.xgrammar")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE")
    args = parser.parse_args()
    api: dict[str, object] = {"components.grammar.use": args.component, "engine.max_num_seqs": 32}
    api |= dict(pair.split("=", 1) for pair in args.set)
    figures = []
    with LLM.from_settings(load_settings(None, api=api)) as llm:
        for kind, grammars in KINDS.items():
            began_s = time.monotonic()
            found = run(llm, kind, grammars, args.each, args.max_tokens)
            print(json.dumps(found, ensure_ascii=False), file=sys.stderr, flush=True)
            whole = found.pop("whole")
            extra = {
                **found,
                "component": args.component,
                "seconds": round(time.monotonic() - began_s, 1),
            }
            figures.append(figure(f"answers that belong, {kind}", whole, "answers", **extra))
    name = args.component.removeprefix("grammar.")
    write(f"grammar_generations_{name}.json", figures, is_record=args.record)
    return int(any(one["wrong"] or one["failed"] for one in figures))


if __name__ == "__main__":
    sys.exit(main())
