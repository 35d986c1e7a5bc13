"""What does a step cost beside the model, with 256 running sequences?

The real engine runs over a runner that answers at once with tokens that were drawn before, so all
that is left is the engine itself. Each step is cut at the runner's call: before it lies deciding,
taking blocks and slots, and describing the rows (``schedule``); behind it lie appending, turning
tokens into text, testing for ends and building what callers get (``outputs``). Text is that of the
tokenizer of the installed checkpoint. The collector of cyclic garbage stays on, as in service.
``--clock cpu`` counts the processor time of the thread instead of the time on the wall: the figure
to look at while other programs share the processors.

Conditions: ``plain``; ``waiting``: as many requests again wait; ``aborts``: one running sequence
is aborted and another one submitted before each step, whose cost counts as ``outputs``;
``logprobs``: five alternatives with each token; ``stream``: the deltas go through ``Router`` to a
reader, so that only the sum is known.
"""

import argparse
import cProfile
import pstats
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from deepinfer_core.bench.percentile import PERCENTS, percentile
from deepinfer_core.config.checkpoints import checkpoint_folder
from deepinfer_core.engine.admission import Rules
from deepinfer_core.engine.batch import Batch
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.rows import RowRequest, RowResult, Runner
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.stream import Router, Stream
from deepinfer_core.engine.tokenizer import open_tokenizer
from deepinfer_core.schedule.plan import StepPlan
from deepinfer_core.schedule.snapshot import Limits
from record import figure, write

VOCABULARY = 4000
"""Ordinary tokens of the installed checkpoint; control tokens above them would end sequences."""
BLOCK_TOKENS = 128
PROMPT_TOKENS = 100
ALTERNATIVES = 5
BOUND_S = 1e-3
"""What both halves together may take at 256 sequences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Seconds of each measured step."""

    schedule_s: list[float]
    outputs_s: list[float]

    @property
    def sums_s(self) -> list[float]:
        """Both together, step by step."""
        return [a + b for a, b in zip(self.schedule_s, self.outputs_s, strict=True)]


Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.thread_time}


class InstantRunner(Runner):
    """Answers with tokens of a fixed sequence, and notes when it was called and when it left."""

    def __init__(self, clock_s: Clock) -> None:
        self._clock_s = clock_s
        source = random.Random("tokens")
        top = tuple((token, -1.0 - token) for token in range(ALTERNATIVES))
        self._plain, self._with_top = (
            [
                RowResult(
                    token_id=source.randrange(VOCABULARY),
                    logprob=-1.5,
                    processed_logprob=-1.5,
                    top=alternatives,
                )
                for _ in range(8192)
            ]
            for alternatives in ((), top)
        )
        self._place = 0
        self.entered_s = self.left_s = 0.0

    def execute(self, plan: StepPlan, rows: tuple[RowRequest, ...]) -> tuple[RowResult, ...]:
        """Give one result a row."""
        self.entered_s = self._clock_s()
        results = self._with_top if rows and rows[0].alternatives else self._plain
        start = self._place = (self._place + len(rows)) % (len(results) - len(rows))
        found = tuple(results[start : start + len(rows)])
        self.left_s = self._clock_s()
        return found


def make_engine(sequences: int, runner: Runner) -> Engine:
    """An engine with room for so many sequences of 4,096 tokens."""
    limits = Limits(
        max_rows=max(sequences, 2048),
        max_sequences=sequences,
        block_tokens=BLOCK_TOKENS,
        usable_blocks=sequences * 32,
    )
    tokenizer = open_tokenizer(checkpoint_folder(None))
    rules = Rules(vocabulary=4096, max_model_tokens=4096)
    return Engine(runner, Batch(limits, sequences + 1), rules, tokenizer, seed=0)


def requests(condition: str) -> Iterator[tuple[list[int], SamplingParams]]:
    """Endless requests of a condition; none of them ends within the measurement."""
    source = random.Random("prompts")
    logprobs = ALTERNATIVES if condition == "logprobs" else False
    params = SamplingParams(temperature=1.0, max_tokens=3900, seed=1, logprobs=logprobs)
    while True:
        yield [source.randrange(VOCABULARY) for _ in range(PROMPT_TOKENS)], params


def fill(engine: Engine, asked: Iterator[tuple[list[int], SamplingParams]], count: int) -> None:
    """Submit some requests."""
    for index in range(count):
        engine.submit(index, *next(asked))


def measure_steps(
    condition: str, clock_s: Clock, sequences: int, steps: int, warmup: int
) -> StepTimes:
    """Time the steps of one condition, after some in which prompts are read."""
    runner = InstantRunner(clock_s)
    engine = make_engine(sequences, runner)
    asked = requests(condition)
    fill(engine, asked, sequences * (2 if condition == "waiting" else 1))
    for _ in range(warmup):
        engine.step()
    oldest = 1
    schedule_s, outputs_s = [], []
    for _ in range(steps):
        between_s = 0.0
        if condition == "aborts":
            began_s = clock_s()
            engine.abort(oldest)
            engine.submit(0, *next(asked))
            between_s = clock_s() - began_s
            oldest += 1
        began_s = clock_s()
        engine.step()
        ended_s = clock_s()
        schedule_s.append(runner.entered_s - began_s)
        outputs_s.append(ended_s - runner.left_s + between_s)
    return StepTimes(schedule_s=schedule_s, outputs_s=outputs_s)


def measure_stream(clock_s: Clock, sequences: int, steps: int, warmup: int) -> list[float]:
    """Seconds from one call of the runner to the next, while a reader takes every delta."""
    runner = InstantRunner(clock_s)
    router = Router(make_engine(sequences, runner), list, lambda update: None)
    asked = requests("stream")
    sums_s: list[float] = []
    left_s = 0.0
    with Stream(router, [next(asked) for _ in range(sequences)]) as stream:
        for _ in stream:
            if runner.left_s != left_s:
                if left_s:
                    sums_s.append(runner.entered_s - left_s)
                left_s = runner.left_s
            if len(sums_s) == steps + warmup:
                break
    return sums_s[warmup:]


def profile(sequences: int, steps: int, warmup: int, lines: int) -> None:
    """Print where a plain step spends its time."""
    engine = make_engine(sequences, InstantRunner(time.perf_counter))
    fill(engine, requests("plain"), sequences)
    for _ in range(warmup):
        engine.step()
    profiler = cProfile.Profile()
    profiler.runcall(lambda: [engine.step() for _ in range(steps)])
    pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(lines)


def described(name: str, times_s: list[float], sequences: int, clock: str) -> dict[str, object]:
    """One figure: the mean, with the percentiles beside it."""
    mean_s = statistics.fmean(times_s)
    return figure(
        f"step_overhead.{name}[sequences={sequences}]", round(mean_s * 1e3, 4), "ms",
        bound={"name": "schedule and outputs together", "value": BOUND_S * 1e3},
        ratio=round(mean_s / BOUND_S, 3), steps=len(times_s), clock=clock,
        **{f"p{p}_ms": round(percentile(times_s, p) * 1e3, 4) for p in PERCENTS},
    )  # fmt: skip


def main() -> None:
    """Measure and store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=256)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--warmup", type=int, default=60)
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall")
    parser.add_argument("--profile", type=int, metavar="LINES", help="print a profile instead")
    args = parser.parse_args()
    sizes: tuple[int, int, int] = (args.sequences, args.steps, args.warmup)
    if args.profile:
        profile(*sizes, args.profile)
        return
    parts: dict[str, Callable[[StepTimes], list[float]]] = {
        "schedule": lambda times: times.schedule_s,
        "outputs": lambda times: times.outputs_s,
        "sum": lambda times: times.sums_s,
    }
    figures, clock_s = [], CLOCKS[args.clock]
    for condition in ("plain", "waiting", "aborts", "logprobs"):
        times = measure_steps(condition, clock_s, *sizes)
        for name, part in parts.items():
            taken_s = part(times)
            figures.append(described(f"{condition}.{name}", taken_s, args.sequences, args.clock))
    sums_s = measure_stream(clock_s, *sizes)
    figures.append(described("stream.sum", sums_s, args.sequences, args.clock))
    write("step_overhead.json", figures)


if __name__ == "__main__":
    main()
