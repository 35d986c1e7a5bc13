"""How much sooner does the first token of a long prompt come when 96 % of the prompt is cached?

Prompts of 8,000 tokens through ``LLM``, one at a time, time to the first token as a caller sees it.
A cold prompt begins with a prefix that nobody sent before. A warm one begins with a prefix of 7,680
tokens (60 blocks of 128) that an earlier request brought in, and goes on with 320 tokens of its
own. ``continued``: that request was the prefix and no more, as in a conversation; ``shared``: two
such requests went on with other tokens, as behind a common instruction. Cold and warm runs take
turns. The bound is the gain that a machine would have whose time is in proportion to the tokens
that are computed: 25.

Each warm prompt is also sent to an engine without the cache, and the tokens must be equal: with
``exact`` recovery in every case. Under ``bounded`` they may differ; then they are counted.
"""

import argparse
import random
import statistics
from collections.abc import Sequence

from deepinfer_core.config import load_settings
from deepinfer_core.engine.outputs import Completion
from record import figure, options, write

from deepinfer_core import LLM, SamplingParams

PROMPT_TOKENS = 8000
CACHED_TOKENS = 7680
VOCABULARY = 4000
"""Ordinary tokens of the installed checkpoint."""
WANTED_GAIN = 22.0
FORMS = ("continued", "shared")


def tokens(name: str, count: int) -> list[int]:
    """Random tokens that follow from a name."""
    source = random.Random(name)
    return [source.randrange(VOCABULARY) for _ in range(count)]


def ask(llm: LLM, prompt: Sequence[int], count: int) -> Completion:
    """Run one request alone; raises what became of it."""
    params = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
    [done] = llm.generate(None, params, [prompt])
    if done.error is not None:
        raise done.error
    return done


def first_token_s(done: Completion) -> float:
    """From the request's arrival to its first token."""
    assert done.timings_s.first_token is not None
    return done.timings_s.first_token


def opened(overrides: Sequence[str], *, has_cache: bool) -> LLM:
    """The installed checkpoint, with or without the prefix cache."""
    cache = f"engine.prefix_cache={'true' if has_cache else 'false'}"
    return LLM.from_settings(load_settings(None, [cache, *overrides]))


def main() -> None:
    """Measure, compare and store."""
    parser = options(__doc__)
    add = parser.add_argument
    add("--repeats", type=int, default=5)
    add("--output-tokens", type=int, default=8, help="that must be equal")
    add("--prompt-tokens", type=int, default=PROMPT_TOKENS)
    add("--cached-tokens", type=int, default=CACHED_TOKENS)
    add("--set", action="append", default=[], metavar="PATH=VALUE", help="e.g. the recovery mode")
    args = parser.parse_args()
    size, cached, count = args.prompt_tokens, args.cached_tokens, args.output_tokens
    prompts = {
        form: [
            tokens(form, cached) + tokens(f"{form} {n}", size - cached) for n in range(args.repeats)
        ]
        for form in FORMS
    }
    prompts["cold"] = [tokens(f"cold {n}", size) for n in range(args.repeats)]
    done: dict[str, list[Completion]] = {name: [] for name in prompts}
    with opened(args.set, has_cache=True) as llm:
        ask(llm, tokens("warm-up", size), count)
        ask(llm, tokens("continued", cached), count)
        for name in ("other", "another"):
            ask(llm, tokens("shared", cached) + tokens(name, size - cached), count)
        for turn in range(args.repeats):
            for name, asked in prompts.items():
                done[name].append(ask(llm, asked[turn], count))
    with opened(args.set, has_cache=False) as llm:
        plain = {form: [ask(llm, prompt, count) for prompt in prompts[form]] for form in FORMS}
    figures = [described(form, done[form], done["cold"], plain[form], args) for form in FORMS]
    write("prefix_gain.json", figures, is_record=args.record)


def described(
    form: str,
    warm: list[Completion],
    cold: list[Completion],
    plain: list[Completion],
    args: argparse.Namespace,
) -> dict[str, object]:
    """One figure; raises if it would not be what its name says."""
    found = {done.usage.cached_tokens for done in warm}
    if found != {args.cached_tokens} or any(done.usage.cached_tokens for done in cold):
        raise SystemExit(
            f"{form}: cached tokens of warm prompts are {sorted(found)}, meant {args.cached_tokens}"
        )
    cold_s, warm_s = ([first_token_s(done) for done in answers] for answers in (cold, warm))
    gain = statistics.median(cold_s) / statistics.median(warm_s)
    bound = args.prompt_tokens / (args.prompt_tokens - args.cached_tokens)
    return figure(
        f"prefix_gain.{form}[prompt={args.prompt_tokens},cached={args.cached_tokens}]",
        round(gain, 2), "x",
        bound={"name": "all tokens / tokens that are not cached", "value": bound},
        ratio=round(gain / bound, 3), wanted=WANTED_GAIN, repeats=args.repeats,
        cold_first_token_s=[round(value, 4) for value in cold_s],
        warm_first_token_s=[round(value, 4) for value in warm_s],
        replayed_tokens=[done.usage.replayed_tokens for done in warm],
        equal_answers=sum(a.token_ids == b.token_ids for a, b in zip(warm, plain, strict=True)),
    )  # fmt: skip


if __name__ == "__main__":
    main()
