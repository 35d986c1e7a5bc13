"""What does bounded replay cost in likelihood, and what does it save?

Held-out documents that are long enough, forced behind a prompt that is their own beginning. On the
encoder side the prompt is cached, no snapshot is there, and ``bounded`` recovery feeds its last
window again. On the decoder side ``compact`` runs the decoder half on the last tokens of the prompt
(``mask`` gives the same, which is measured on some documents). Both against a run that does
neither, document by document: mean increase of the negative log-likelihood, in nats a token, over
the first tokens behind the prompt, with a 95 % confidence interval from resampled documents.

What is saved stands beside it: cached tokens that are fed again, times the layers they pass, and
the same for ``exact`` recovery; on the decoder side rows that pass the decoder half.
"""

import json
import random
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from deepinfer_core.cache.recovery import resume_point
from record import figure, options, write

from deepinfer_core import LLM, SamplingParams

HELDOUT = Path(__file__).parent.parent / "tests" / "data" / "heldout.jsonl"
PROMPTS = (257, 385, 513)
"""Whole blocks and the row to draw from; one block alone would be recovered exactly."""
SCORED = 128
FIRST = (16, 64, 128)
"""How many tokens behind the prompt: the effect fades with the distance."""
KEPT = (134, 140, 256)
"""The least that the window and six rows of backtracking allow, the default, and two windows."""
RESAMPLES = 10_000
SEQUENCES = 32
MASKED_DOCUMENTS = 3
"""On so many, ``mask`` is run as well."""

ARITHMETICS: dict[str, dict[str, object]] = {
    "production": {"compute": "bfloat16"},
    "semantic": {
        "compute": "float32",
        "activation_quantisation": False,
        "cache_quantisation": False,
    },
}
"""With roundings, any other way moves a likelihood now and then, without direction; without them
what is left is the approximation itself."""

Nats = list[tuple[float, ...]]
"""Of each document, the negative log-likelihoods of the tokens behind the prompt."""


class Way(NamedTuple):
    """How prompts are treated, and what that gave."""

    nats: Nats
    replayed_tokens: int


def documents(llm: LLM) -> list[list[int]]:
    """Token ids of all held-out documents."""
    end = llm.loaded.config.eos_token_id
    lines = map(json.loads, HELDOUT.read_text(encoding="utf-8").splitlines())
    return [line["ids"] if "ids" in line else [*llm.encode(line["text"]), end] for line in lines]


def forced(model: str | None, texts: list[list[int]], prompt: int, **engine: object) -> Way:
    """Force the texts behind their beginnings; where prefixes are cached, behind cached ones."""
    beginnings = [ids[:prompt] for ids in texts]
    params = [
        SamplingParams(
            temperature=0,
            max_tokens=SCORED,
            golden_token_ids=ids[prompt : prompt + SCORED],
            logprobs=True,
            ignore_eos=True,
        )
        for ids in texts
    ]
    sizes: dict[str, Any] = {
        "max_num_seqs": SEQUENCES,
        "max_model_len": prompt + SCORED,
        "max_num_batched_tokens": 1024,
        "prefix_cache": False,
        "snapshot_slots": 0,
    }
    with LLM(model, **{**sizes, **engine}) as llm:
        if engine.get("prefix_cache"):
            fill = SamplingParams(temperature=0, max_tokens=1)
            llm.generate(prompt_token_ids=beginnings, sampling_params=fill)
        done = llm.generate(prompt_token_ids=beginnings, sampling_params=params)
    for one in done:
        if one.error is not None:
            raise one.error
    [replayed] = {one.usage.replayed_tokens for one in done}
    nats = [tuple(-entry.logprob for entry in one.logprobs or ()) for one in done]
    return Way(nats, replayed)


def increase(way: Nats, plain: Nats, first: int) -> tuple[float, float, float]:
    """Mean over documents of the increase in nats a token, and the ends of its interval."""
    gaps = [
        (sum(one[:first]) - sum(two[:first])) / first for one, two in zip(way, plain, strict=True)
    ]
    draw = random.Random(first)
    means = sorted(statistics.fmean(draw.choices(gaps, k=len(gaps))) for _ in range(RESAMPLES))
    cut = RESAMPLES // 40
    return statistics.fmean(gaps), means[cut], means[-cut - 1]


def costs(name: str, way: Nats, plain: Nats, **extra: object) -> list[dict[str, object]]:
    """One figure for each number of tokens behind the prompt."""
    found = []
    for first in FIRST:
        mean, low, high = increase(way, plain, first)
        found.append(
            figure(
                f"replay_nll.{name}.first_{first}", round(mean, 5), "nat/token",
                interval_95=[round(low, 5), round(high, 5)],
                plain=round(statistics.fmean(sum(one[:first]) / first for one in plain), 4),
                documents=len(plain), **extra,
            )
        )  # fmt: skip
    return found


def furthest(one: Nats, two: Nats) -> float:
    """Largest distance of two likelihoods."""
    pairs = zip((n for doc in one for n in doc), (n for doc in two for n in doc), strict=True)
    return max(abs(a - b) for a, b in pairs)


def recovery_figures(llm: LLM, prompts: Sequence[int]) -> list[dict[str, object]]:
    """Tokens fed again times layers, by both recoveries, of prompts without a snapshot."""
    policy, layers = llm.engine.batch.pages.policy, llm.loaded.config.text_config.num_hidden_layers
    far = policy.block_tokens * (policy.layers * policy.window_tokens // policy.block_tokens + 2)
    found = []
    for prompt in (*prompts, far + policy.block_tokens):
        work = {
            recovery: layers
            * resume_point(
                cached_blocks=(prompt - 1) // policy.block_tokens,
                snapshots=(),
                limit_tokens=prompt - 1,
                recovery=recovery,
                block_tokens=policy.block_tokens,
                window_tokens=policy.window_tokens,
                layers=policy.layers,
            ).replayed_tokens
            for recovery in ("bounded", "exact")
        }
        found.append(
            figure(
                f"replay_work.encoder.prompt_{prompt}", work["bounded"], "token x layer",
                exact=work["exact"], ratio=round(work["bounded"] / work["exact"], 3),
                with_snapshot=0,
            )
        )  # fmt: skip
    return found


def prompt_figures(
    model: str | None,
    texts: list[list[int]],
    prompt: int,
    halves: tuple[int, int],
    arithmetic: str,
) -> list[dict[str, object]]:
    """All ways with prompts of one length under one arithmetic."""
    layers, decoder_layers = halves
    numerics: dict[str, object] = {"numerics": ARITHMETICS[arithmetic]}
    plain = forced(model, texts, prompt, **numerics).nats
    bounded = forced(model, texts, prompt, prefix_cache=True, recovery="bounded", **numerics)
    found = costs(
        f"{arithmetic}.encoder.bounded.prompt_{prompt}", bounded.nats, plain,
        replayed_token_layers=bounded.replayed_tokens * layers,
    )  # fmt: skip
    for keep in KEPT:
        kept = {"replay_keep_tokens": keep, **numerics}
        compact = forced(model, texts, prompt, replay="compact", **kept).nats
        masked = forced(model, texts[:MASKED_DOCUMENTS], prompt, replay="mask", **kept).nats
        apart = furthest(masked, compact[: len(masked)])
        found += costs(
            f"{arithmetic}.decoder.keep_{keep}.prompt_{prompt}", compact, plain,
            mask_and_compact_apart=apart, agreement_bound=1e-5,
            decoder_token_layers=keep * decoder_layers,
            without_replay=prompt * decoder_layers,
        )  # fmt: skip
        if not apart <= 1e-5:
            raise SystemExit(f"mask and compact are {apart} nats apart at {prompt}, keep {keep}")
    return found


def main() -> None:
    """Measure and store."""
    parser = options(__doc__)
    parser.add_argument("--model", help="another checkpoint than the installed one")
    parser.add_argument("--documents", type=int, help="only so many of each length")
    args = parser.parse_args()
    with LLM(args.model) as llm:
        text = llm.loaded.config.text_config
        layers = text.num_hidden_layers
        halves = layers, layers - llm.loaded.config.boundary_layer
        every = documents(llm)
        figures = recovery_figures(llm, PROMPTS)
    for prompt in PROMPTS:
        texts = [ids for ids in every if len(ids) >= prompt + SCORED][: args.documents]
        for arithmetic in ARITHMETICS:
            figures += prompt_figures(args.model, texts, prompt, halves, arithmetic)
    write("replay_nll.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
