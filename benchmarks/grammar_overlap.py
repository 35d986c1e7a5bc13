"""Where in a step are masks filled, and how much longer does the step take for it?

The shipped checkpoint decodes under three conditions in turns, in one engine: ``free``, without a
grammar; ``held``, under one from the first token on; ``known``, the same answers again, with masks
that were kept. What ``held`` takes beyond ``known`` is what filling adds to a step; what both take
beyond ``free`` is the device's, which applies masks, and that of another text. Times are the step
loop's own (``StepFacts``), of steps in which all sequences decode. Masks and forward passes are
timed where they run, so that it shows which part of the filling lies within the step's own forward
pass. On a CPU the device is a thread: give it a core of its own, or nothing can be at the same
time. In a synchronous engine nothing is, which shows what there is to hide.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from deepinfer_core.config import load_settings
from deepinfer_core.engine.grammar_masks import Grammars
from deepinfer_core.engine.instruments import Instruments, StepFacts
from deepinfer_core.engine.rows import RowRequest
from deepinfer_core.engine.runner import ModelRunner
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.errors import DeepInferError
from deepinfer_core.interfaces.device import Event, Stream
from record import figure, options, write

from deepinfer_core import LLM, SamplingParams, __version__

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 20, "maxLength": 60},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "likes": {"type": "array", "items": {"enum": ["red", "blue", "cake"]}, "minItems": 3},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}
SCHEMA = json.dumps({"type": "array", "items": PERSON, "minItems": 40})
"""No answer ends within the measurement."""
CONDITIONS = ("free", "held", "known")
BATCHES = (1, 64)
PROMPTS = ("Once upon a time", "Tom has a", "The answer is:", "One day, a little")
MODEL_TOKENS = 256


class Span(NamedTuple):
    """When something began and ended."""

    began_s: float
    ended_s: float

    @property
    def length_s(self) -> float:
        """How long it took."""
        return self.ended_s - self.began_s

    def within(self, other: Span) -> float:
        """Seconds of it that lie within another one."""
        return max(0.0, min(self.ended_s, other.ended_s) - max(self.began_s, other.began_s))


class Timeline:
    """What happened since it was cleared.

    Attributes:
        launches: forward passes that were queued.
        forwards: when each of them ran, on the device's thread.
        masks: the number of a step's forward pass, and when its masks were made.
        facts: of the steps whose results were handled.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.launches = 0
        self.forwards: list[Span] = []
        self.masks: list[tuple[int, Span]] = []
        self.facts: list[StepFacts] = []


class TimedStream(Stream):
    """Notes when forward passes run."""

    def __init__(self, inner: Stream, timeline: Timeline) -> None:
        self._inner, self._timeline = inner, timeline

    def submit(self, work: Callable[[], None]) -> Event:
        """Queue work."""
        if ".launch." not in work.__qualname__:
            return self._inner.submit(work)
        self._timeline.launches += 1

        def timed() -> None:
            began_s = time.perf_counter()
            work()
            self._timeline.forwards.append(Span(began_s, time.perf_counter()))

        return self._inner.submit(timed)

    def drain(self) -> None:
        """Wait."""
        self._inner.drain()

    def close(self) -> None:
        """Close."""
        self._inner.close()


class TimedGrammars(Grammars):
    """Notes when masks are filled.

    Attributes:
        kept: mask of each position of the text of a seed.
        fills: whether masks are filled; otherwise those that were kept are taken.
    """

    def __init__(self, inner: Grammars, timeline: Timeline) -> None:
        super().__init__(inner._pool, inner._end_ids)
        self._timeline = timeline
        self.kept: dict[tuple[int, int], RowRequest] = {}
        self.fills = True

    def masked(
        self, rows: tuple[RowRequest, ...], owners: list[Sequence]
    ) -> tuple[tuple[RowRequest, ...], list[tuple[Sequence, DeepInferError]]]:
        """Fill them, or look them up."""
        if not self.fills:
            kept = [self.kept[row.settings.seed, row.position] for row in rows]
            known = [row._replace(mask=one.mask) for row, one in zip(rows, kept, strict=True)]
            return tuple(known), []
        began_s = time.perf_counter()
        found, broken = super().masked(rows, owners)
        span = Span(began_s, time.perf_counter())
        self._timeline.masks.append((self._timeline.launches - 1, span))
        if any(row.mask is not None for row in found):
            self.kept |= {(row.settings.seed, row.position): row for row in found}
        return found, broken


class TimedInstruments(Instruments):
    """Keeps the facts of steps."""

    timeline: Timeline

    def stepped(self, facts: StepFacts) -> None:
        """Keep them."""
        self.timeline.facts.append(facts)
        super().stepped(facts)


class Turn(NamedTuple):
    """Medians of one condition in one turn, in milliseconds, and shares of its filling.

    Attributes:
        step, schedule, wait: elapsed, scheduling and waiting times of a step.
        mask: filling of a step.
        hidden: share of the time of filling that lies within the forward pass of the step.
        late: share of the steps whose forward pass ended before its masks were filled.
    """

    step: float
    schedule: float
    wait: float
    mask: float
    hidden: float
    late: float


class Bench:
    """An engine that notes what it does."""

    def __init__(self, *, is_asynchronous: bool) -> None:
        api: dict[str, object] = {
            "components.grammar.use": "grammar.xgrammar",
            "engine.max_num_seqs": max(BATCHES),
            "engine.max_model_len": MODEL_TOKENS,
            "engine.asynchronous": is_asynchronous,
        }
        self.llm, self._timeline = LLM.from_settings(load_settings(None, api=api)), Timeline()
        engine, runner = self.llm.engine, self.llm.engine.runner
        assert isinstance(runner, ModelRunner)
        runner.stream = TimedStream(runner.stream, self._timeline)
        engine.grammars = self._grammars = TimedGrammars(engine.grammars, self._timeline)
        instruments = TimedInstruments(engine.batch.readings, version=__version__, model="")
        instruments.timeline = self._timeline
        engine.instruments = instruments

    def turn(self, condition: str, batch: int, steps: int) -> Turn:
        """Let a batch decode under one condition."""
        grammar = None if condition == "free" else {"kind": "json_schema", "grammar": SCHEMA}
        params = [
            SamplingParams(max_tokens=steps, temperature=1.0, seed=seed, grammar=grammar,
                           ignore_eos=grammar is None)
            for seed in range(batch)
        ]  # fmt: skip
        self._timeline.clear()
        self._grammars.fills = condition != "known"
        answers = self.llm.generate([PROMPTS[n % len(PROMPTS)] for n in range(batch)], params)
        self.llm.engine.runner.drain()
        if any(one.finish_reason != "length" for one in answers):
            raise SystemExit(f"an answer of {condition} ended early: {answers[0].error}")
        return self._read(batch)

    def _read(self, batch: int) -> Turn:
        found = self._timeline
        facts = [one for one in found.facts if one.kind == "decode" and one.decode_rows == batch]
        pairs = [(mask, found.forwards[number]) for number, mask in found.masks]
        filled_s = sum(mask.length_s for mask, _ in pairs)
        within_s = sum(mask.within(forward) for mask, forward in pairs)
        late = [mask.ended_s > forward.ended_s for mask, forward in pairs]
        return Turn(
            step=_milliseconds(one.elapsed_s for one in facts),
            schedule=_milliseconds(one.schedule_s for one in facts),
            wait=_milliseconds(one.wait_s for one in facts),
            mask=_milliseconds(mask.length_s for mask, _ in pairs) if pairs else 0.0,
            hidden=within_s / filled_s if pairs else 0.0,
            late=sum(late) / len(late) if pairs else 0.0,
        )


def _milliseconds(times_s: Iterable[float]) -> float:
    return statistics.median(times_s) * 1e3


def figures_of(way: str, batch: int, turns: dict[str, list[Turn]]) -> list[dict[str, object]]:
    """What a step takes, one figure a condition, in the median of the turns."""
    found = []
    median = {
        condition: Turn(*map(statistics.median, zip(*each, strict=True)))
        for condition, each in turns.items()
    }
    for condition, turn in median.items():
        more: dict[str, object] = {}
        if condition == "held":
            pairs = zip(turns["held"], turns["known"], strict=True)
            added_ms = statistics.median(held.step - known.step for held, known in pairs)
            more = {
                "peer": {"name": "known", "value": round(median["known"].step, 3)},
                "ratio": round(turn.step / median["known"].step, 3),
                "added_ms": round(added_ms, 3),
                "mask_ms": round(turn.mask, 3),
                "hidden_share": round(turn.hidden, 3),
                "late_share": round(turn.late, 3),
            }
        times = {"schedule_ms": round(turn.schedule, 3), "wait_ms": round(turn.wait, 3)}
        name = f"grammar_step.{way}.{condition}[batch={batch}]"
        found.append(figure(name, round(turn.step, 3), "ms", **more, **times))
    return found


def main() -> None:
    """Measure and store."""
    parser = options(__doc__)
    parser.add_argument("--turns", type=int, default=9, help="of each condition")
    parser.add_argument("--steps", type=int, default=100, help="of each turn")
    args = parser.parse_args()
    figures = []
    for way in ("asynchronous", "synchronous"):
        bench = Bench(is_asynchronous=way == "asynchronous")
        with bench.llm:
            for batch in BATCHES:
                turns: dict[str, list[Turn]] = {condition: [] for condition in CONDITIONS}
                for number in range(args.turns + 1):
                    for condition in CONDITIONS:
                        turn = bench.turn(condition, batch, args.steps)
                        if number:  # the first one compiles and records
                            turns[condition].append(turn)
                figures += figures_of(way, batch, turns)
    write("grammar_overlap.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
