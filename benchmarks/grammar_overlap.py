"""Where in a step are masks filled, and how much longer does the step take for it?

The shipped checkpoint decodes the same answers under one grammar in two conditions, in one engine:
``held`` fills masks, ``known`` takes masks that were kept, so that tokens and steps are the same.
They take turns of a few steps, in an order that changes from round to round; a round's ratio is
that of its medians, and over the rounds it has an interval (``paired_ratios``). Times are the step
loop's own (``StepFacts``), of steps in which all sequences decode.

Masks and forward passes are timed where they run, too, and that needs no comparison. ``hidden`` is
the part of the filling that lies within the forward pass of its step, ``room`` is how much longer
that pass lasts than the filling, and ``exposed`` is what is left over when it has ended: the time
by which sampling waits for masks. What ``held`` takes beyond ``known`` and beyond ``exposed`` is
taken from the forward pass: on a CPU the device is a thread of the same interpreter.

So that both are at the same time, the device, one thread, has a core of its own, and the host stays
on another. Where other programs run, they take the time in which the host of ``known`` waits, and
slow its device down for it, so that the control is no control: ``others`` is the part of all
processors' time that they took, and steps are to be compared where it is next to nothing. What lies
where, ``hidden`` and ``exposed``, holds in any case. In a synchronous engine nothing is at the same
time, which shows what there is to hide.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterable
from typing import NamedTuple

from deepinfer_core.config import load_settings
from deepinfer_core.engine.runner import ModelRunner
from grammar_timeline import Others, TimedGrammars, TimedInstruments, TimedStream, Timeline
from paired_ratios import ratio
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
CONDITIONS = ("held", "known")
BATCHES = (1, 64)
PROMPTS = ("Once upon a time", "Tom has a", "The answer is:", "One day, a little")
MODEL_TOKENS = 256


class Turn(NamedTuple):
    """One condition in one turn: medians of its steps in milliseconds, and a share.

    Attributes:
        step: elapsed time of a step.
        forward: its forward pass.
        mask: filling its masks; 0 where they were kept, as all that follows.
        room: from when they were filled to the end of the forward pass; less than 0 if later.
        exposed: filling behind the end of the forward pass, in the mean of all steps.
        hidden: share of the time of filling that lies within the forward passes.
    """

    step: float
    forward: float
    mask: float = 0.0
    room: float = 0.0
    exposed: float = 0.0
    hidden: float = 0.0


def read(timeline: Timeline, batch: int) -> Turn:
    """A turn in which so many sequences decoded."""
    steps = [x for x in timeline.facts if x.kind == "decode" and x.decode_rows == batch]
    step = _milliseconds(one.elapsed_s for one in steps)
    forward = _milliseconds(one.length_s for one in timeline.forwards[-len(steps) :])
    pairs = [(mask, timeline.forwards[number]) for number, mask in timeline.masks]
    if not pairs:
        return Turn(step, forward)
    return Turn(
        step,
        forward,
        mask=_milliseconds(mask.length_s for mask, _ in pairs),
        room=_milliseconds(forward.ended_s - mask.ended_s for mask, forward in pairs),
        exposed=1e3 * statistics.fmean(mask.after(forward) for mask, forward in pairs),
        hidden=sum(mask.within(forward) for mask, forward in pairs)
        / sum(mask.length_s for mask, _ in pairs),
    )


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
        host, *_, device = sorted(os.sched_getaffinity(0))
        runner.stream.submit(lambda: os.sched_setaffinity(0, {device}))
        runner.drain()
        os.sched_setaffinity(0, {host})

    def turn(self, condition: str, batch: int, steps: int) -> Turn:
        """Let a batch decode under one condition."""
        params = [
            SamplingParams(
                max_tokens=steps, temperature=1.0, seed=seed,
                grammar={"kind": "json_schema", "grammar": SCHEMA},
            )
            for seed in range(batch)
        ]  # fmt: skip
        self._timeline.clear()
        self._grammars.fills = condition != "known"
        answers = self.llm.generate([PROMPTS[n % len(PROMPTS)] for n in range(batch)], params)
        self.llm.engine.runner.drain()
        if any(one.finish_reason != "length" for one in answers):
            raise SystemExit(f"an answer of {condition} ended early: {answers[0].error}")
        return read(self._timeline, batch)


def _milliseconds(times_s: Iterable[float]) -> float:
    return statistics.median(times_s) * 1e3


def figures_of(
    way: str, batch: int, turns: dict[str, list[Turn]], others: float
) -> list[dict[str, object]]:
    """What a step takes, one figure a condition, in the median of the turns."""
    median = {
        condition: Turn(*map(statistics.median, zip(*each, strict=True)))
        for condition, each in turns.items()
    }
    held, known = turns["held"], turns["known"]
    more = {
        "peer": {"name": "known", "value": round(median["known"].step, 3)},
        **ratio([one.step for one in known], [one.step for one in held]).rounded(),
        "forward": ratio([one.forward for one in known], [one.forward for one in held]).rounded(),
        "mask_ms": round(median["held"].mask, 3),
        "room_ms": round(median["held"].room, 3),
        "exposed_ms": round(statistics.fmean(one.exposed for one in held), 4),
        "hidden_share": round(median["held"].hidden, 3),
        "others": round(others, 3),
        "rounds": len(held),
    }
    return [
        figure(
            f"grammar_step.{way}.{condition}[batch={batch}]",
            round(median[condition].step, 3), "ms", forward_ms=round(median[condition].forward, 3),
            **(more if condition == "held" else {}),
        )
        for condition in CONDITIONS
    ]  # fmt: skip


def main() -> None:
    """Measure and store."""
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="turns of each condition")
    parser.add_argument("--steps", type=int, default=40, help="of each turn")
    args = parser.parse_args()
    figures, cores = [], os.sched_getaffinity(0)
    if len(cores) < 2:
        raise SystemExit("asked for a core for the device and one for the host, found one core")
    for way in ("asynchronous", "synchronous"):
        os.sched_setaffinity(0, cores)
        bench = Bench(is_asynchronous=way == "asynchronous")
        with bench.llm:
            for batch in BATCHES:
                turns: dict[str, list[Turn]] = {condition: [] for condition in CONDITIONS}
                others = Others()
                for number in range(args.rounds + 2):
                    for condition in CONDITIONS[:: 1 - number % 2 * 2]:
                        turn = bench.turn(condition, batch, args.steps)
                        if number > 1:  # the first ones compile and record
                            turns[condition].append(turn)
                figures += figures_of(way, batch, turns, others.share())
    write("grammar_overlap.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
