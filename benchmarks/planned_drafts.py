"""Is planned drafting ever slower than decoding without drafts, or with all five verified?

Three engines decode so many sequences at once, each behind an opening of its own that the model was
never trained on (held-out stories and conversations by turns). They take turns of a fraction of a
second, again and again, in an order that rotates, and what is compared are the turns of one round:
whatever else the machine does meets all three alike. Given is the median of the rounds' ratios, and
the interval that holds the true median with 95 % certainty. Only steps count in which all sequences
decode. Seconds are of processor time, of all threads together; one thread computes.

With the planned budget, a table of fitted temperatures may be given. The shares say what became of
the drafts: how many of a sequence and step were drafted, verified and accepted, and how many steps
ran a round or verified nothing.
"""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from deepinfer_core.interfaces.draft_planner import DraftView, StepTimes
from record import figure, options, write

from deepinfer_core import LLM, SamplingParams

HELDOUT = Path(__file__).parent.parent / "tests" / "data" / "heldout.jsonl"
SEQUENCES = (16, 32, 48, 60, 72, 96)
DRAFTS = 5
OPENING_WORDS = 8
STEPS_BEFORE = 4
BUDGETS = ("plain", "fixed", "planned")


@dataclass
class Turns:
    """What an engine did in its turns.

    Attributes:
        speeds: tokens a second of processor time, by turn.
        tokens: emitted in all.
        sequence_steps: steps times sequences.
        wall_s: time on the clock.
        verified: drafts that were planned for.
        bare_steps: steps that verified none.
        steps: the times of each, as planners are told.
    """

    speeds: list[float] = field(default_factory=list)
    tokens: int = 0
    sequence_steps: int = 0
    wall_s: float = 0.0
    verified: int = 0
    bare_steps: int = 0
    steps: list[StepTimes] = field(default_factory=list)


class Contestant:
    """One engine with its sequences.

    Args:
        budget: of ``BUDGETS``.
        count: sequences.
        args: of the command line.
    """

    def __init__(self, budget: str, count: int, args: Any) -> None:
        self.llm = opened(budget, count, args)
        self.turns = Turns()
        self._prompts = prompts(self.llm, count)
        self._numbers: list[int] = []
        self._tokens = args.tokens
        self._is_over = True
        self._watch()

    def begin(self, temperature: float) -> None:
        """Sequences of another temperature, and nothing counted yet."""
        self.stop()
        self._temperature = temperature
        self.turns = Turns()

    def turn(self, seconds: float) -> None:
        """Decode for so much processor time, or until the first answer ends."""
        if self._is_over:
            self._fill()
        self._is_counting = True
        engine, emitted, steps = self.llm.engine, 0, 0
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        while not self._is_over and time.process_time() - began_cpu_s < seconds:
            updates = engine.step()
            self._is_over = any(delta.completion is not None for _, delta in updates)
            emitted += sum(len(delta.token_ids) for _, delta in updates)
            steps += 1
        cpu_s = time.process_time() - began_cpu_s
        self._is_counting = False
        self.turns.wall_s += time.perf_counter() - began_s
        self.turns.speeds.append(emitted / cpu_s)
        self.turns.tokens += emitted
        self.turns.sequence_steps += steps * len(self._prompts)

    def stop(self) -> None:
        """End all sequences."""
        for number in self._numbers:
            self.llm.engine.abort(number)
        while len(self.llm.engine.batch):
            self.llm.engine.step()
        self._numbers, self._is_over = [], True

    def _fill(self) -> None:
        """Let new sequences decode."""
        self.stop()
        usual = {"temperature": self._temperature, "max_tokens": self._tokens, "ignore_eos": True}
        engine = self.llm.engine
        self._numbers = [
            engine.submit(index, each, SamplingParams(seed=index, **usual))
            for index, each in enumerate(self._prompts)
        ]
        begun: set[int] = set()
        while len(begun) < len(self._prompts):
            begun |= {number for number, delta in engine.step() if delta.token_ids}
        for _ in range(STEPS_BEFORE):
            engine.step()
        self._is_over = False

    def _watch(self) -> None:
        """Listen to the planner, if there is one."""
        self._is_counting = False
        drafting = self.llm.engine.batch.drafting
        if drafting is None:
            return
        plan, took = drafting.planner.rows, drafting.planner.took

        def rows(views: Sequence[DraftView], *, other_rows: int) -> Sequence[int]:
            given = plan(views, other_rows=other_rows)
            if self._is_counting:
                self.turns.verified += sum(given) - len(given)
                self.turns.bare_steps += sum(given) == len(given)
            return given

        def listen(times: StepTimes) -> None:
            if self._is_counting:
                self.turns.steps.append(times)
            took(times)

        drafting.planner.rows, drafting.planner.took = rows, listen  # type: ignore[method-assign]


def prompts(llm: LLM, count: int) -> list[list[int]]:
    """Openings by turns from stories and conversations, again from the first if there are few."""
    lines = list(map(json.loads, HELDOUT.read_text(encoding="utf-8").splitlines()))
    stories = [line["text"] for line in lines if line["source"] == "tinystories"]
    chats = [line["ids"] for line in lines if line["source"] == "story_chat"]
    assert llm.engine.tokenizer is not None
    answer = llm.engine.tokenizer.control_id("<｜Assistant｜>")
    found = []
    for number in range(count):
        if number % 2:
            ids = chats[number // 2 % len(chats)]
            found.append(ids[: len(ids) - ids[::-1].index(answer)])
        else:
            words = stories[number // 2 % len(stories)].split()
            found.append(llm.encode(" ".join(words[:OPENING_WORDS])))
    return found


def opened(budget: str, count: int, args: Any) -> LLM:
    """An engine for so many sequences."""
    common = {
        "threads": 1, "max_num_seqs": count, "max_num_batched_tokens": max(512, 6 * count),
        "prefix_cache": False, "asynchronous": args.asynchronous,
    }  # fmt: skip
    if budget == "plain":
        return LLM(**common)
    chosen: dict[str, object] = {"use": "dspark.block", "options": {}}
    if args.calibration:
        chosen["options"] = {"calibration": str(args.calibration)}
    speculation = {"budget": budget, "rule": args.rule}
    return LLM(**common, components={"drafter": chosen}, speculation=speculation)


def typical(ratios: Sequence[float]) -> dict[str, object]:
    """The median, and between which of the numbers the true one lies with 95 % certainty."""
    ordered, count = sorted(ratios), len(ratios)
    rank, below = 0, 0.5**count
    while below <= 0.025 and rank < count // 2:
        rank += 1
        below += math.comb(count, rank) * 0.5**count
    low, high = ordered[max(rank - 1, 0)], ordered[count - max(rank, 1)]
    return {"median": round(median(ordered), 3), "between": [round(low, 3), round(high, 3)]}


def shares(turns: Turns) -> dict[str, float]:
    """What became of drafts, of a sequence and step; and parts of steps and of time."""
    steps, each = turns.steps, turns.sequence_steps
    if not steps:
        return {}
    drafted = DRAFTS * sum(step.sequences for step in steps if step.drafted)
    whole_s = sum(step.step_s for step in steps)
    found = {
        "drafted": drafted / each,
        "verified": turns.verified / each,
        "accepted": turns.tokens / each - 1,
        "steps_with_a_round": sum(step.drafted for step in steps) / len(steps),
        "steps_that_verify_nothing": turns.bare_steps / len(steps),
        "time_of_rounds": sum(step.round_s or 0.0 for step in steps) / whole_s,
    }
    return {name: round(value, 3) for name, value in found.items()}


def compared(
    engines: dict[str, Contestant], count: int, temperature: float, args: Any
) -> list[dict[str, object]]:
    """The three budgets at one number of sequences and one temperature."""
    for one in engines.values():
        one.begin(temperature)
        for _ in range(args.warming):
            one.turn(args.seconds)
        one.turns = Turns()
    for number in range(args.rounds):
        order = [*BUDGETS[number % 3 :], *BUDGETS[: number % 3]]
        for budget in order:
            engines[budget].turn(args.seconds)
    figures = []
    for budget, one in engines.items():
        turns = one.turns
        against = {
            f"against_{other}": typical(
                [a / b for a, b in zip(turns.speeds, engines[other].turns.speeds, strict=True)]
            )
            for other in ("plain", "fixed")
            if other != budget
        }
        figures.append(
            figure(
                f"decoding.{budget}[temperature={temperature:g},sequences={count}]",
                round(median(turns.speeds), 1), "tokens/s", **against, shares=shares(turns),
                tokens_a_second_on_the_clock=round(turns.tokens / turns.wall_s, 1),
                rounds=args.rounds,
            )
        )  # fmt: skip
    return figures


def main() -> None:
    """Compare at every number of sequences, and store."""
    parser = options(__doc__)
    parser.add_argument("--sequences", type=int, nargs="+", default=SEQUENCES)
    parser.add_argument("--tokens", type=int, default=240, help="of an answer")
    parser.add_argument("--seconds", type=float, default=0.25, help="processor time of a turn")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--warming", type=int, default=5, help="turns that do not count")
    parser.add_argument("--temperatures", type=float, nargs="+", default=(0.0, 1.0))
    parser.add_argument("--rule", default="match")
    parser.add_argument("--asynchronous", action="store_true")
    parser.add_argument("--calibration", type=Path)
    args = parser.parse_args()
    figures = []
    for count in args.sequences:
        engines = {budget: Contestant(budget, count, args) for budget in BUDGETS}
        for temperature in args.temperatures:
            figures += compared(engines, count, temperature, args)
        for one in engines.values():
            one.stop()
            one.llm.close()
    write("planned_drafts.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
