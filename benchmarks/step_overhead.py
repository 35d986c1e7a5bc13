"""What does a step cost beside the model, with 256 running sequences?

The real engine, prefix cache included, runs over a runner that answers at once with tokens that
were drawn before, so all that is left is the engine itself. Text is that of the tokenizer of the
installed checkpoint. The collector of cyclic garbage stays on, as in service. ``sum`` is the time
of a step less the time inside the runner. A synchronous engine is cut where it calls the runner:
``schedule`` before the launch (deciding, taking blocks and slots), ``rows`` before the sampling
(describing the rows), ``outputs`` behind the results (publishing blocks, appending, turning tokens
into text, testing for ends, building what callers get). ``--clock cpu`` counts the processor time
of the thread instead of the time on the wall: the figure to look at while other programs share the
processors.

Conditions: ``plain``; ``waiting``: as many requests again wait; ``aborts``: one running sequence
is aborted and another one submitted before each step, whose cost counts as ``outputs``;
``logprobs``: five alternatives with each token; ``asynchronous``: like ``plain``, with steps
launched ahead; ``stream``: the same, and the deltas go through ``Router`` to a reader.
"""

import cProfile
import pstats
import random
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

from deepinfer_core.bench.percentile import PERCENTS, percentile
from deepinfer_core.config.checkpoints import checkpoint_folder
from deepinfer_core.engine.admission import Rules
from deepinfer_core.engine.batch import Batch
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.pages import PageCounts
from deepinfer_core.engine.prefix_reuse import ReusePolicy
from deepinfer_core.engine.router import Router
from deepinfer_core.engine.rows import DraftRequest, RowRequest, RowResult, Runner, StepHandle
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.stream import Stream
from deepinfer_core.engine.tokenizer import open_tokenizer
from deepinfer_core.schedule.plan import StepPlan
from deepinfer_core.schedule.snapshot import Limits
from record import figure, options, write

VOCABULARY = 4000
"""Ordinary tokens of the installed checkpoint; control tokens above them would end sequences."""
BLOCK_TOKENS = 128
PROMPT_TOKENS = 100
ALTERNATIVES = 5
BOUND_S = 1e-3
"""What all parts together may take at 256 sequences."""


Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.thread_time}
PARTS = ("schedule", "rows", "outputs", "sum")
Times = dict[str, list[float]]
"""Seconds of each measured step, by part."""


class InstantStep(StepHandle):
    """Holds the results of a step."""

    __slots__ = ("results",)

    def __init__(self) -> None:
        self.results: tuple[RowResult, ...] = ()


class InstantRunner(Runner):
    """Answers with tokens of a fixed sequence, and notes when each call came and left.

    Attributes:
        entered_s, left_s: of the last call of each method.
        inside_s: time inside all calls so far.
        steps: steps whose results were read.
    """

    def __init__(self, clock_s: Clock) -> None:
        source = random.Random("tokens")
        top = tuple((token, -1.0 - token) for token in range(ALTERNATIVES))
        self._plain, self._with_top = (
            [RowResult(source.randrange(VOCABULARY), -1.5, -1.5, alternatives) for _ in range(8192)]
            for alternatives in ((), top)
        )
        self._clock_s = clock_s
        self._place = 0
        self.entered_s: dict[str, float] = {}
        self.left_s: dict[str, float] = {}
        self.inside_s = 0.0
        self.steps = 0

    def launch(self, plan: StepPlan, before: StepHandle | None) -> StepHandle:
        """Nothing to do."""
        self.entered_s["launch"] = self._clock_s()
        step = InstantStep()
        self._leave("launch")
        return step

    def sample(
        self,
        step: StepHandle,
        rows: tuple[RowRequest, ...],
        wanted: tuple[DraftRequest, ...] = (),
    ) -> None:
        """Choose one result a row."""
        self.entered_s["sample"] = self._clock_s()
        assert isinstance(step, InstantStep)
        has_top = bool(rows) and rows[0].settings.alternatives > 0
        results = self._with_top if has_top else self._plain
        start = self._place = (self._place + len(rows)) % (len(results) - len(rows))
        step.results = tuple(results[start : start + len(rows)])
        self._leave("sample")

    def results(self, step: StepHandle) -> tuple[RowResult, ...]:
        """Give them."""
        self.entered_s["results"] = self._clock_s()
        assert isinstance(step, InstantStep)
        self.steps += 1
        self._leave("results")
        return step.results

    def _leave(self, name: str) -> None:
        self.left_s[name] = self._clock_s()
        self.inside_s += self.left_s[name] - self.entered_s[name]


def make_engine(sequences: int, runner: Runner, *, is_asynchronous: bool) -> Engine:
    """An engine with room for so many sequences of 4,096 tokens."""
    limits = Limits(
        max_rows=max(sequences, 2048),
        max_sequences=sequences,
        block_tokens=BLOCK_TOKENS,
        usable_blocks=sequences * 32,
    )
    counts = PageCounts(blocks=sequences * 32 + 1, slots=5 * sequences + 1, snapshots=4 * sequences)
    policy = ReusePolicy(block_tokens=BLOCK_TOKENS, window_tokens=128, layers=9)
    tokenizer = open_tokenizer(checkpoint_folder(None))
    rules = Rules(vocabulary=4096, max_model_tokens=4096)
    batch = Batch(limits, counts, policy)
    return Engine(runner, batch, rules, tokenizer, seed=0, is_asynchronous=is_asynchronous)


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


def measure_steps(condition: str, clock_s: Clock, sequences: int, steps: int, warmup: int) -> Times:
    """Time the steps of one condition, after some in which prompts are read."""
    runner = InstantRunner(clock_s)
    is_asynchronous = condition == "asynchronous"
    engine = make_engine(sequences, runner, is_asynchronous=is_asynchronous)
    asked = requests(condition)
    fill(engine, asked, sequences * (2 if condition == "waiting" else 1))
    for _ in range(warmup):
        engine.step()
    times: Times = {part: [] for part in PARTS}
    for number in range(steps):
        began_s, inside_s = clock_s(), runner.inside_s
        if condition == "aborts":
            engine.abort(number + 1)
            engine.submit(0, *next(asked))
        between_s = clock_s() - began_s
        engine.step()
        ended_s, entered_s, left_s = clock_s(), runner.entered_s, runner.left_s
        times["schedule"].append(entered_s["launch"] - began_s - between_s)
        times["rows"].append(entered_s["sample"] - left_s["launch"])
        times["outputs"].append(ended_s - left_s["results"] + between_s)
        times["sum"].append(ended_s - began_s - (runner.inside_s - inside_s))
    return {"sum": times["sum"]} if is_asynchronous else times


def _unread(text: str) -> list[int]:
    raise AssertionError(f"prompts are token ids, found {text!r}")


def measure_stream(clock_s: Clock, sequences: int, steps: int, warmup: int) -> Times:
    """The same from one call for results to the next, while a reader takes every delta."""
    runner = InstantRunner(clock_s)
    engine = make_engine(sequences, runner, is_asynchronous=True)
    router = Router(engine, _unread, lambda update: None)
    asked = requests("stream")
    marks: list[float] = []
    with Stream(router, [next(asked) for _ in range(sequences)]) as stream:
        for _ in stream:
            if runner.steps > len(marks):
                # Time outside the runner up to this step; equal steps are equal differences.
                marks += [clock_s() - runner.inside_s] * (runner.steps - len(marks))
            if len(marks) > steps + warmup:
                break
    return {"sum": [after - before for before, after in pairwise(marks[warmup:])]}


def profile(sequences: int, steps: int, warmup: int, lines: int) -> None:
    """Print where a plain step spends its time."""
    engine = make_engine(sequences, InstantRunner(time.perf_counter), is_asynchronous=False)
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
        bound={"name": "what a step may take beside the model", "value": BOUND_S * 1e3},
        ratio=round(mean_s / BOUND_S, 3), steps=len(times_s), clock=clock,
        **{f"p{p}_ms": round(percentile(times_s, p) * 1e3, 4) for p in PERCENTS},
    )  # fmt: skip


def main() -> None:
    """Measure and store."""
    parser = options(__doc__)
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
    clock_s = CLOCKS[args.clock]
    measured = {
        condition: measure_steps(condition, clock_s, *sizes)
        for condition in ("plain", "waiting", "aborts", "logprobs", "asynchronous")
    }
    measured["stream"] = measure_stream(clock_s, *sizes)
    figures = [
        described(f"{condition}.{part}", times_s, args.sequences, args.clock)
        for condition, times in measured.items()
        for part, times_s in times.items()
    ]
    write("step_overhead.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
