"""How long does a load take, and when does each token come?

Times are seen from outside, where a caller of ``LLM`` stands: they include queueing, scheduling,
drawing and turning tokens into text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from deepinfer_core.bench.workload import GivenPrompts, Load, RandomPrompts
from deepinfer_core.engine.outputs import Completion, Delta
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import EngineError

__all__ = ["Ask", "RunTimes", "run_load", "run_repeatedly"]

Ask = Callable[[Sequence[Sequence[int]], Sequence[SamplingParams]], Iterable[Delta]]
"""Runs requests and gives their deltas as they come, like ``LLM.stream``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """What one run showed.

    Attributes:
        elapsed_s: from asking to the last token.
        first_token_s: from asking to the first token, of each request.
        gaps_s: between tokens of one request, all requests; tokens that come together share the
            time since the one before them.
        prompt_tokens: of all prompts.
        cached_tokens: of them, those that a prefix cache had.
        fed_tokens: prompt tokens that were computed, those of a replay included, of each request
            in the order of their ends.
        output_tokens: tokens that were drawn, of each request.
    """

    elapsed_s: float
    first_token_s: tuple[float, ...]
    gaps_s: tuple[float, ...]
    prompt_tokens: int
    cached_tokens: int
    fed_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]


def run_repeatedly(
    ask: Ask,
    source: RandomPrompts | GivenPrompts,
    *,
    warmup: int,
    repeats: int,
    advance: Callable[[], None] = lambda: None,
) -> list[RunTimes]:
    """Run the loads of a source; times of the first ``warmup`` runs are thrown away.

    Args:
        ask: the engine.
        source: of the loads.
        warmup: runs before the measured ones.
        repeats: measured runs.
        advance: called after each run.

    Raises:
        DeepInferError: a request failed.
    """
    runs = []
    for number in range(warmup + repeats):
        runs.append(run_load(ask, source.load(number)))
        advance()
    return runs[warmup:]


def run_load(ask: Ask, load: Load, clock_s: Callable[[], float] = time.perf_counter) -> RunTimes:
    """Run all requests of a load at once, greedily and past the end of the sequence.

    Raises:
        DeepInferError: a request failed.
        EngineError: a request got another number of tokens than it asked for.
    """
    params = [
        SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
        for count in load.output_tokens
    ]
    last_s: list[float | None] = [None] * len(params)
    firsts_s, gaps_s = [0.0] * len(params), []
    done: list[Completion] = []
    began_s = clock_s()
    for delta in ask(load.prompts, params):
        now_s, before_s = clock_s(), last_s[delta.index]
        if delta.token_ids:
            # A first delta with several tokens, of drafts, has one first token and gaps of 0.
            gap_s = 0.0 if before_s is None else (now_s - before_s) / len(delta.token_ids)
            gaps_s += [gap_s] * (len(delta.token_ids) - (before_s is None))
            firsts_s[delta.index] = now_s - began_s if before_s is None else firsts_s[delta.index]
            last_s[delta.index] = now_s
        if delta.completion is not None:
            done.append(_checked(delta.completion, load))
    elapsed_s = clock_s() - began_s
    usages = [completion.usage for completion in done]
    return RunTimes(
        elapsed_s=elapsed_s,
        first_token_s=tuple(firsts_s),
        gaps_s=tuple(gaps_s),
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        cached_tokens=sum(usage.cached_tokens for usage in usages),
        fed_tokens=tuple(
            usage.prompt_tokens - usage.cached_tokens + usage.replayed_tokens for usage in usages
        ),
        output_tokens=load.output_tokens,
    )


def _checked(completion: Completion, load: Load) -> Completion:
    if completion.error is not None:
        raise completion.error
    found, wanted = len(completion.token_ids), load.output_tokens[completion.index]
    if found != wanted:
        raise EngineError(
            f"prompt {completion.index + 1} got {found} tokens, asked for {wanted}",
            hint="leave out what ends requests early",
        )
    return completion
