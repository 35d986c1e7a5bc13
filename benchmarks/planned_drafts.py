"""Is planned drafting ever slower than decoding without drafts, or with all five verified?

Four engines decode the same so many texts at once, each behind an opening of its own that the model
was never trained on (held-out stories and conversations by turns): without drafts, once more
without drafts, with all drafts verified, and as planned. They take turns, in a random order: in a
turn each decodes until its texts have grown by so many tokens on average, so what is compared
is the time that the same tokens take within a fraction of a second, and whatever else the machine
does meets all alike. Seconds are of processor time, of all threads together; one thread computes.

Compared are the median of the turns' ratios, and the time of all turns together, in which with
planned drafts the trials count that happened to fall into them: there is one in many turns, since
it may cost 1/256 of the time. Intervals hold the true ratio with 95 % certainty: turns are drawn
again and again from those that were. Plain decoding is the mean of the two engines without drafts,
and the ratio of these two is the control: it says how far from 1 equal engines may seem to be,
since each has its weights and pages elsewhere in memory. They are opened in a random order.

With the planned budget, a table of fitted temperatures may be given. The shares say what became of
the drafts: how many of a sequence and step were drafted, verified and accepted, and how many steps
ran a round or verified nothing.
"""

import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

from deepinfer_core.interfaces.draft_planner import DraftView, StepTimes
from record import figure, options, write

from deepinfer_core import LLM, SamplingParams

HELDOUT = Path(__file__).parent.parent / "tests" / "data" / "heldout.jsonl"
SEQUENCES = (16, 32, 48, 60, 72, 96)
DRAFTS = 5
OPENING_WORDS = 8
STEPS_BEFORE = 4
TURN_TOKENS = 12
"""By which the texts of an engine grow in one turn, on average."""
TEXT_TOKENS = 180
"""By which they grow before new ones begin; the longest of them may be twice as long."""
BUDGETS = ("plain", "again", "fixed", "planned")
AGAINST = {"plain": (), "fixed": ("plain",), "planned": ("plain", "fixed")}
"""What each is compared with."""
WARMING_S = {"plain": 0.3, "again": 0.3, "fixed": 0.5, "planned": 3.0}
RESAMPLES = 1000


@dataclass
class Turns:
    """What an engine did in its turns.

    Attributes:
        token_s: seconds of processor time a token, by turn.
        tokens: emitted in all.
        sequence_steps: steps times sequences.
        verified: drafts that were planned for.
        bare_steps: steps that verified none.
        steps: the times of each, as planners are told.
    """

    token_s: list[float] = field(default_factory=list)
    tokens: int = 0
    sequence_steps: int = 0
    verified: int = 0
    bare_steps: int = 0
    steps: list[StepTimes] = field(default_factory=list)


class Contestant:
    """One engine with its texts.

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
        self._is_over = True
        self._grown = self._wanted = 0
        self._watch()

    def begin(self, temperature: float) -> None:
        """Texts of another temperature, and nothing counted yet."""
        self.stop()
        self._temperature = temperature
        self.turns = Turns()

    def warm(self, seconds: float) -> None:
        """Decode for so much processor time."""
        began_s = time.process_time()
        while time.process_time() - began_s < seconds:
            self.turn()
        self.turns = Turns()

    def turn(self) -> None:
        """Decode until the texts have grown by so much more, and begin new ones where they end."""
        if self._is_over:
            self._fill()
        self._is_counting = True
        engine, emitted, steps = self.llm.engine, 0, 0
        self._wanted += TURN_TOKENS * len(self._prompts)
        began_s = time.process_time()
        while not steps or (self._grown + emitted < self._wanted and not self._is_over):
            updates = engine.step()
            self._is_over = any(delta.completion is not None for _, delta in updates)
            emitted += sum(len(delta.token_ids) for _, delta in updates)
            steps += 1
        took_s = time.process_time() - began_s
        self._is_counting = False
        self._grown += emitted
        self._is_over |= self._wanted >= TEXT_TOKENS * len(self._prompts)
        self.turns.token_s.append(took_s / emitted)
        self.turns.tokens += emitted
        self.turns.sequence_steps += steps * len(self._prompts)

    def stop(self) -> None:
        """End all texts."""
        for number in self._numbers:
            self.llm.engine.abort(number)
        while len(self.llm.engine.batch):
            self.llm.engine.step()
        self._numbers, self._is_over = [], True

    def _fill(self) -> None:
        """Let new texts grow."""
        self.stop()
        usual: dict[str, Any] = {
            "temperature": self._temperature, "max_tokens": 3 * TEXT_TOKENS, "ignore_eos": True,
        }  # fmt: skip
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
        self._is_over, self._grown, self._wanted = False, 0, 0

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
    if budget in {"plain", "again"}:
        return LLM(**common)
    # Steps are measured anew: what another day's machine took says nothing about this run.
    chosen: dict[str, object] = {"use": "dspark.block", "options": {"curve_ttl_s": 0.0}}
    if args.calibration:
        chosen["options"] = {"curve_ttl_s": 0.0, "calibration": str(args.calibration)}
    speculation = {"budget": budget, "rule": args.rule}
    return LLM(**common, components={"drafter": chosen}, speculation=speculation)


def ratio(one_s: Sequence[float], other_s: Sequence[float], name: str) -> dict[str, object]:
    """How many times as fast the first is: in the median turn, and over all of them.

    Args:
        one_s: seconds a token, by turn.
        other_s: the same of the other, in the same turns.
        name: seeds the resampling.
    """
    chance, pairs = random.Random(name), list(zip(one_s, other_s, strict=True))
    medians, wholes = [], []
    for _ in range(RESAMPLES):
        drawn = chance.choices(pairs, k=len(pairs))
        medians.append(median(pair[1] / pair[0] for pair in drawn))
        wholes.append(sum(pair[1] for pair in drawn) / sum(pair[0] for pair in drawn))
    return {
        "median": round(median(pair[1] / pair[0] for pair in pairs), 4),
        "between": interval(medians),
        "all": round(sum(other_s) / sum(one_s), 4),
        "all_between": interval(wholes),
    }


def interval(values: list[float]) -> list[float]:
    """The middle 95 % of them."""
    ordered, cut = sorted(values), len(values) // 40
    return [round(ordered[cut], 4), round(ordered[-cut - 1], 4)]


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
    """The budgets at one number of sequences and one temperature."""
    for budget, one in engines.items():
        one.begin(temperature)
        one.warm(WARMING_S[budget])
    chance = random.Random(count)
    began_s, rounds = time.process_time(), 0
    while time.process_time() - began_s < args.seconds:
        for budget in chance.sample(BUDGETS, len(BUDGETS)):
            engines[budget].turn()
        rounds += 1
    seconds = {budget: one.turns.token_s for budget, one in engines.items()}
    seconds["plain"] = [
        fmean(pair) for pair in zip(seconds["plain"], seconds["again"], strict=True)
    ]
    figures = []
    for budget, others in AGAINST.items():
        name = f"decoding.{budget}[temperature={temperature:g},sequences={count}]"
        against = {
            f"against_{other}": ratio(seconds[budget], seconds[other], name) for other in others
        }
        if budget == "plain":
            first_s = engines["plain"].turns.token_s
            against = {"control": ratio(seconds["again"], first_s, name)}
        figures.append(
            figure(
                name, round(1 / fmean(seconds[budget]), 1), "tokens/s",
                **against, shares=shares(engines[budget].turns), rounds=rounds,
            )
        )  # fmt: skip
    return figures


def main() -> None:
    """Compare at every number of sequences, and store."""
    parser = options(__doc__)
    parser.add_argument("--sequences", type=int, nargs="+", default=SEQUENCES)
    parser.add_argument("--seconds", type=float, default=18.0, help="of a row, all engines")
    parser.add_argument("--temperatures", type=float, nargs="+", default=(0.0, 1.0))
    parser.add_argument("--rule", default="match")
    parser.add_argument("--asynchronous", action="store_true")
    parser.add_argument("--calibration", type=Path)
    args = parser.parse_args()
    figures = []
    for count in args.sequences:
        opened_first = random.Random(count).sample(BUDGETS, len(BUDGETS))
        engines = {budget: Contestant(budget, count, args) for budget in opened_first}
        for temperature in args.temperatures:
            figures += compared(engines, count, temperature, args)
        for one in engines.values():
            one.stop()
            one.llm.close()
    write("planned_drafts.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
