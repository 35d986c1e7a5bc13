"""Where does the time of a decode step and of a mostly cached prompt go?

Milliseconds a step of greedy decoding, synchronous and asynchronous, best of three; then, of a
synchronous engine under the profiler, the functions with the most time of their own. The profiler
makes Python dearer than it is; what stands in ``built-in method di_...`` are compiled kernels.
"""

from __future__ import annotations

import cProfile
import pstats
import random
import time
from typing import Any

from record import figure, options, write

from deepinfer_core import LLM, SamplingParams

PROMPT_TOKENS, CACHED_TOKENS = 8000, 7680
PROFILED_STEPS = 20
RUNS = 3


def prompts(count: int, size: int, seed: int) -> list[list[int]]:
    """Token ids that stand for no text."""
    draw = random.Random(seed)
    return [[draw.randrange(10, 4000) for _ in range(size)] for _ in range(count)]


def decode(llm: LLM, batch: int, steps: int) -> float:
    """Seconds that so many steps take, prompts of 30 tokens included."""
    params = SamplingParams(temperature=0, max_tokens=steps, ignore_eos=True)
    began_s = time.perf_counter()
    llm.generate(prompt_token_ids=prompts(batch, 30, batch), sampling_params=params)
    return time.perf_counter() - began_s


def own_times(profile: cProfile.Profile, units: int, lines: int) -> list[list[Any]]:
    """(function, calls, milliseconds of its own) a unit of what was profiled, the most first."""
    table = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    rows = [
        [name, round(calls / units, 1), round(own_s / units * 1e3, 3)]
        for (_, _, name), (_, calls, own_s, _, _) in table.items()
    ]
    return sorted(rows, key=lambda row: -row[2])[:lines]


def step_figures(batch: int, steps: int, lines: int) -> list[dict[str, Any]]:
    """Time of a step both ways, and a profile of the synchronous one."""
    figures = []
    for is_asynchronous in (True, False):
        with LLM(max_num_seqs=16, asynchronous=is_asynchronous) as llm:
            decode(llm, batch, 2)
            best_s = min(decode(llm, batch, steps) for _ in range(RUNS))
            way = "asynchronous" if is_asynchronous else "synchronous"
            spent: dict[str, Any] = {}
            if not is_asynchronous:
                profile = cProfile.Profile()
                profile.runcall(decode, llm, batch, PROFILED_STEPS)
                spent["own_ms"] = own_times(profile, PROFILED_STEPS, lines)
            name, step_ms = f"decode_step.{way}[batch={batch}]", round(best_s / steps * 1e3, 2)
            figures.append(figure(name, step_ms, "ms", **spent))
    return figures


def warm_figure(lines: int) -> dict[str, Any]:
    """A prompt of which 96 % are cached."""
    [prefix] = prompts(1, CACHED_TOKENS, 0)
    rests = prompts(RUNS + 1, PROMPT_TOKENS - CACHED_TOKENS, 1)
    params = SamplingParams(temperature=0, max_tokens=1)
    with LLM(asynchronous=False) as llm:
        llm.generate(prompt_token_ids=[[*prefix, 5]], sampling_params=params)
        times_s = []
        for rest in rests[:RUNS]:
            [done] = llm.generate(prompt_token_ids=[prefix + rest], sampling_params=params)
            assert done.usage.cached_tokens == CACHED_TOKENS
            times_s.append(done.timings_s.total)
        profile = cProfile.Profile()
        profile.enable()
        llm.generate(prompt_token_ids=[prefix + rests[RUNS]], sampling_params=params)
        profile.disable()
    return figure(
        f"warm_prompt[prompt={PROMPT_TOKENS},cached={CACHED_TOKENS}]",
        round(min(times_s) * 1e3, 1),
        "ms",
        own_ms=own_times(profile, 1, lines),
    )


def main() -> None:
    """Measure and store."""
    parser = options(__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--lines", type=int, default=14, help="of each profile")
    args = parser.parse_args()
    figures = [f for batch in (1, 16) for f in step_figures(batch, args.steps, args.lines)]
    figures.append(warm_figure(args.lines))
    write("step_profile.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
