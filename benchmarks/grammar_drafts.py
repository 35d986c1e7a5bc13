"""How many drafts survive a grammar that their drafter does not know, and what do they cost?

The shipped checkpoint answers questions, 64 tokens each, with and without a grammar. Counted are
tokens a decode step gives a sequence, drafts that were verified and accepted for each token, and
rows fed for each token. All of it is counting: it does not depend on the machine.
"""

from __future__ import annotations

from typing import Any

from deepinfer_core.config import load_settings
from record import figure, options, write

from deepinfer_core import LLM, SamplingParams

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z][a-z]{1,8}$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "likes": {
            "type": "array",
            "items": {"enum": ["red", "blue", "cake"]},
            "minItems": 2,
            "maxItems": 4,
        },
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}
GRAMMARS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "schema": {"kind": "json_schema", "grammar": PERSON},
    "object": {"kind": "json_object"},
    "sentences": {"kind": "regex", "grammar": r"([A-Z][a-z]{2,9}( [a-z]{2,9}){1,4}\. ){8}"},
}
QUESTIONS = (
    "Tell me about Tom and his red ball.",
    "Who is Lily?",
    "What color is the ball?",
    "Tell me a story about a cat.",
)
EACH = 4
"""Answers to each question."""


def counted(llm: LLM, grammar: dict[str, Any] | None, temperature: float) -> dict[str, float]:
    """Let all questions be answered."""
    asked = [
        (
            llm.encode_chat([{"role": "user", "content": question}]),
            SamplingParams(max_tokens=64, temperature=temperature, seed=seed, grammar=grammar),
        )
        for question in QUESTIONS
        for seed in range(EACH)
    ]
    rows = llm.engine.instruments.board.number("rows_total", "decode")
    before = rows.value
    answers = llm.generate(
        prompt_token_ids=[ids for ids, _ in asked], sampling_params=[params for _, params in asked]
    )
    if any(one.error for one in answers):
        raise SystemExit(str(next(one.error for one in answers if one.error)))
    tokens = sum(one.usage.completion_tokens for one in answers)
    verified = sum(one.usage.drafted_tokens for one in answers)
    accepted = sum(one.usage.accepted_tokens for one in answers)
    return {
        "tokens_a_step": tokens / (tokens - accepted),
        "verified_a_token": verified / tokens,
        "accepted_a_token": accepted / tokens,
        "rows_a_token": (rows.value - before) / tokens,
    }


def main() -> None:
    """Count and store."""
    args = options(__doc__).parse_args()
    figures = []
    for drafter in ("core.ngram", "dspark.block"):
        for is_asynchronous in (True, False):
            api: dict[str, object] = {
                "components.grammar.use": "grammar.xgrammar",
                "components.drafter.use": drafter,
                "engine.max_num_seqs": len(QUESTIONS) * EACH,
                "engine.max_model_len": 256,
                "engine.asynchronous": is_asynchronous,
                "engine.prefix_cache": False,
            }
            way = "asynchronous" if is_asynchronous else "synchronous"
            with LLM.from_settings(load_settings(None, api=api)) as llm:
                for temperature in (0.0, 1.0):
                    for name, grammar in GRAMMARS.items():
                        found = counted(llm, grammar, temperature)
                        rounded = {key: round(value, 3) for key, value in found.items()}
                        figures.append(
                            figure(
                                f"grammar_drafts.{drafter}.{way}.{name}[t={temperature:g}]",
                                rounded.pop("tokens_a_step"),
                                "tokens/step",
                                **rounded,
                            )
                        )
    write("grammar_drafts.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
