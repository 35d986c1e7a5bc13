"""How fast is decoding without drafts, with all five verified, and with as many as are planned?

Tokens a second of so many sequences decoding at once, each behind an opening of its own that the
model was never trained on (held-out stories and conversations by turns). Only steps count in which
all of them decode. The three engines take turns, and the best of the turns counts for each, since a
busy machine only ever makes a run slower. Seconds are of processor time, of all threads together,
for the same reason; one thread computes.

With the planned budget, a table of fitted temperatures may be given; and what a sequence's step
verifies and emits is reported with the share of the draft rounds.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepinfer_core.interfaces.draft_planner import DraftView, StepTimes
from record import figure, options, write

from deepinfer_core import LLM, SamplingParams

HELDOUT = Path(__file__).parent.parent / "tests" / "data" / "heldout.jsonl"
SEQUENCES = (16, 32, 48, 60, 72, 96)
OPENING_WORDS = 8
STEPS_BEFORE = 4
BUDGETS = ("plain", "fixed", "planned")


@dataclass
class Watched:
    """What an engine verified and how long its steps took."""

    rows: Counter[int] = field(default_factory=Counter)
    steps: list[StepTimes] = field(default_factory=list)

    def attach(self, llm: LLM) -> None:
        """Listen to the planner of an engine, if it has one."""
        drafting = llm.engine.batch.drafting
        if drafting is None:
            return
        plan, took = drafting.planner.rows, drafting.planner.took

        def rows(views: Sequence[DraftView], *, other_rows: int) -> Sequence[int]:
            given = plan(views, other_rows=other_rows)
            self.rows.update(given)
            return given

        def listen(times: StepTimes) -> None:
            self.steps.append(times)
            took(times)

        drafting.planner.rows, drafting.planner.took = rows, listen  # type: ignore[method-assign]


@dataclass
class Turn:
    """One stretch of decoding.

    Attributes:
        tokens: emitted in it.
        cpu_s: processor time.
        wall_s: time on the clock.
        sequence_steps: steps times sequences.
    """

    tokens: int
    cpu_s: float
    wall_s: float
    sequence_steps: int


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


def decode(llm: LLM, ids: list[list[int]], args: Any, temperature: float) -> Turn:
    """Let all sequences decode, and count so many steps, or until the first one ends."""
    engine, count = llm.engine, len(ids)
    usual = {"temperature": temperature, "max_tokens": args.tokens, "ignore_eos": True}
    numbers = [
        engine.submit(index, each, SamplingParams(seed=index, **usual))
        for index, each in enumerate(ids)
    ]
    begun: set[int] = set()
    while len(begun) < count:
        begun |= {number for number, delta in engine.step() if delta.token_ids}
    for _ in range(STEPS_BEFORE):
        engine.step()
    emitted, steps, wall_s, cpu_s, is_over = 0, 0, 0.0, 0.0, False
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    while not is_over and steps < args.steps:
        updates = engine.step()
        is_over = any(delta.completion is not None for _, delta in updates)
        if not is_over:
            emitted += sum(len(delta.token_ids) for _, delta in updates)
            steps += 1
            wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    for number in numbers:
        engine.abort(number)
    while len(engine.batch):
        engine.step()
    return Turn(emitted, cpu_s, wall_s, steps * count)


def opened(budget: str, count: int, args: Any) -> LLM:
    """An engine for so many sequences."""
    common = {
        "threads": 1, "max_num_seqs": count, "max_num_batched_tokens": max(512, 6 * count),
        "prefix_cache": False, "asynchronous": args.asynchronous,
    }  # fmt: skip
    if budget == "plain":
        return LLM(**common)
    chosen = {"use": "dspark.block", "options": {}}
    if args.calibration:
        chosen["options"] = {"calibration": str(args.calibration)}
    speculation = {"budget": budget, "rule": args.rule}
    return LLM(**common, components={"drafter": chosen}, speculation=speculation)


def shares(steps: list[StepTimes]) -> dict[str, float]:
    """Parts of the time on the clock, and of the steps."""
    whole = sum(step.step_s for step in steps)
    return {
        "time_of_draft_rounds": round(sum(step.round_s or 0.0 for step in steps) / whole, 3),
        "steps_with_a_draft_round": round(sum(step.drafted for step in steps) / len(steps), 3),
    }


def compared(count: int, temperature: float, args: Any) -> list[dict[str, object]]:
    """The three budgets at one number of sequences and one temperature."""
    engines = {budget: opened(budget, count, args) for budget in BUDGETS}
    watched = {budget: Watched() for budget in BUDGETS}
    turns: dict[str, list[Turn]] = {budget: [] for budget in BUDGETS}
    for budget, llm in engines.items():
        watched[budget].attach(llm)
        decode(llm, prompts(llm, count), args, temperature)  # warms up, and learns
        watched[budget].rows.clear()
        watched[budget].steps.clear()
    for _ in range(args.turns):
        for budget, llm in engines.items():
            ids = prompts(llm, count)
            turns[budget].append(decode(llm, ids, args, temperature))
    for llm in engines.values():
        llm.close()
    best: Callable[[str], float] = lambda b: max(t.tokens / t.cpu_s for t in turns[b])  # noqa: E731
    figures = []
    for budget in BUDGETS:
        seen, mine = watched[budget], turns[budget]
        each = sum(turn.tokens for turn in mine) / sum(turn.sequence_steps for turn in mine)
        planned = sum(seen.rows.values()) or 1
        figures.append(
            figure(
                f"decoding.{budget}[temperature={temperature:g},sequences={count}]",
                round(best(budget), 1), "tokens/s",
                tokens_a_second_on_the_clock=round(max(t.tokens / t.wall_s for t in mine), 1),
                all_turns=[round(turn.tokens / turn.cpu_s, 1) for turn in mine],
                tokens_a_sequence_and_step=round(each, 3),
                verified_a_sequence_and_step=round(
                    sum((rows - 1) * times for rows, times in seen.rows.items()) / planned, 3
                ),
                against_plain=round(best(budget) / best("plain"), 3),
                against_fixed=round(best(budget) / best("fixed"), 3),
                shares=shares(seen.steps) if seen.steps else {},
            )
        )  # fmt: skip
    return figures


def main() -> None:
    """Compare at every number of sequences, and store."""
    parser = options(__doc__)
    parser.add_argument("--sequences", type=int, nargs="+", default=SEQUENCES)
    parser.add_argument("--tokens", type=int, default=240, help="of an answer")
    parser.add_argument("--steps", type=int, default=40, help="counted, of each turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--temperatures", type=float, nargs="+", default=(0.0, 1.0))
    parser.add_argument("--rule", default="match")
    parser.add_argument("--asynchronous", action="store_true")
    parser.add_argument("--calibration", type=Path)
    args = parser.parse_args()
    figures = [
        one
        for temperature in args.temperatures
        for count in args.sequences
        for one in compared(count, temperature, args)
    ]
    write("planned_drafts.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
