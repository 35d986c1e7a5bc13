"""Does everything that the tiny checkpoint writes under a grammar belong to it?

Draws at temperature 1, many answers for each kind of grammar, and asks other judges than the ones
that made the masks: jsonschema for JSON, ``re`` for regular expressions, an Earley recogniser over
characters for EBNF. Answers that were cut by their number of tokens are counted as cut.

    python benchmarks/grammar_generations.py --each 1000
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable
from typing import Any

from deepinfer_core.config import load_settings
from earley import recognises

from deepinfer_core import LLM, SamplingParams

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
PROMPTS = ("Once upon a time", "Tom has a", "The answer is:", "One day, a little")


def judge_of(kind: str, grammar: Any) -> Callable[[str], bool]:
    """What decides whether a text belongs, independently of the masks."""
    if kind == "json_schema":
        import jsonschema

        validator = jsonschema.Draft202012Validator(grammar)
        return lambda text: bool(validator.is_valid(json.loads(text)))
    if kind == "regex":
        pattern = re.compile(grammar)
        return lambda text: pattern.fullmatch(text) is not None
    return lambda text: recognises(grammar, "root", text)


def run(llm: LLM, kind: str, grammars: tuple[Any, ...], each: int, most: int) -> dict[str, Any]:
    """Write ``each`` answers, shared out among the grammars, and judge them."""
    found = {"answers": 0, "whole": 0, "cut": 0, "wrong": 0, "failed": 0}
    examples: list[str] = []
    for number, grammar in enumerate(grammars):
        judge = judge_of(kind, grammar)
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
            elif judge(answer.text):
                found["whole"] += 1
            else:
                found["wrong"] += 1
                examples.append(answer.text)
    return {"kind": kind, **found, "examples": examples[:5]}


def main() -> int:
    """Print JSON; 1 if an answer that ended does not belong to its grammar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=1000, help="answers of each kind")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--component", default="grammar.xgrammar")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE")
    args = parser.parse_args()
    api: dict[str, object] = {"components.grammar.use": args.component}
    api |= dict(pair.split("=", 1) for pair in args.set)
    began_s, results = time.monotonic(), []
    with LLM.from_settings(load_settings(None, api=api)) as llm:
        for kind, grammars in (("json_schema", SCHEMAS), ("regex", PATTERNS), ("ebnf", GRAMMARS)):
            results.append(run(llm, kind, grammars, args.each, args.max_tokens))
            print(json.dumps(results[-1], ensure_ascii=False), file=sys.stderr, flush=True)
    print(json.dumps({"results": results, "seconds": round(time.monotonic() - began_s, 1)}))
    return int(any(one["wrong"] or one["failed"] for one in results))


if __name__ == "__main__":
    sys.exit(main())
