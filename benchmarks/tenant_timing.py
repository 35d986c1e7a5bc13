"""Can one tenant tell by time whether another one has sent a prompt?

Both tenants share an engine with prefix reuse and a store, and differ in their salt. Each prompt is
new. For half of them, drawn at random, *they* send it first, so that its blocks are in the engine's
memory and in the store; for all of them a prompt of *theirs* is sent first, so that what the engine
did last is alike. Then *we* send it, and our time to the first token is what an eavesdropper sees.
Every few prompts the engine's memory is emptied, so that the store is asked as well.

Compared are the ranks of the two samples (Mann and Whitney's U, normal approximation, which holds
for more than 20 a sample): under the hypothesis that nothing is told, |z| is above 2.58 in one of
100 runs. That this would notice a hit is shown by *they* sending the same prompt once more: the
time of their second answer against their first. Whatever we reuse of theirs is counted as well, and
must be nothing.
"""

import math
import random
from collections.abc import Sequence
from statistics import median

from deepinfer_core.config import load_settings
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.request_options import RequestOptions
from record import figure, options, write

from deepinfer_core import LLM, SamplingParams

PROMPT_TOKENS = 1000
VOCABULARY = 4000
"""Ordinary tokens of the installed checkpoint."""
LIMIT = 2.58
ANSWER = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)


def ask(llm: LLM, salt: str, prompt: Sequence[int]) -> Completion:
    """One answer of one token."""
    options = RequestOptions(cache_salt=salt)
    [done] = llm.generate(prompt_token_ids=[prompt], sampling_params=ANSWER, options=options)
    assert done.error is None
    return done


def first_token_s(done: Completion) -> float:
    """What an eavesdropper measures."""
    assert done.timings_s.first_token is not None
    return done.timings_s.first_token


def z_of_ranks(one: Sequence[float], other: Sequence[float]) -> float:
    """How many deviations U is from what equal distributions give; positive: ``one`` is larger."""
    wins = sum((a > b) + (a == b) / 2 for a in one for b in other)
    pairs = len(one) * len(other)
    return (wins - pairs / 2) / math.sqrt(pairs * (len(one) + len(other) + 1) / 12)


def main() -> None:
    """Send prompts, compare, and write what came out."""
    parser = options(__doc__)
    parser.add_argument("--prompts", type=int, default=200, help="that we send")
    parser.add_argument("--seed", type=int, default=1, help="of which of them they have sent")
    args = parser.parse_args()
    source = random.Random(args.seed)
    known: list[float] = []
    new: list[float] = []
    theirs: list[float] = []
    again: list[float] = []
    reused = 0
    store = {"components.kv_store.use": "core.memory"}
    with LLM.from_settings(load_settings(None, api=store)) as llm:
        for number in range(args.prompts):
            if number % 8 == 0:
                llm.engine.batch.pages.cache.clear()
            prompt, other = (
                [source.randrange(VOCABULARY) for _ in range(PROMPT_TOKENS)] for _ in "12"
            )
            is_known = source.random() < 0.5
            sent = prompt if is_known else other
            theirs.append(first_token_s(ask(llm, "they", sent)))
            again.append(first_token_s(ask(llm, "they", sent)))
            done = ask(llm, "we", prompt)
            reused += done.usage.cached_tokens or 0
            (known if is_known else new).append(first_token_s(done))
    if reused:
        raise SystemExit(f"{reused} tokens of another tenant were reused")
    z, hit_z = z_of_ranks(known, new), z_of_ranks(theirs, again)
    figures = [
        figure(
            "tenants.ranks_known_against_new",
            round(z, 2),
            "deviations",
            bound=LIMIT,
            is_told=abs(z) > LIMIT,
            known_ms=round(1e3 * median(known), 3),
            new_ms=round(1e3 * median(new), 3),
            known=len(known),
            new=len(new),
        ),
        figure(
            "tenants.ranks_first_against_again",
            round(hit_z, 2),
            "deviations",
            bound=LIMIT,
            is_told=abs(hit_z) > LIMIT,
            first_ms=round(1e3 * median(theirs), 3),
            again_ms=round(1e3 * median(again), 3),
        ),
    ]
    write("tenant_timing.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
