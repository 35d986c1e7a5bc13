"""Is planned drafting ever slower than decoding without drafts, or with all five verified?

So many texts are decoded at once, each behind an opening of its own that the model was never
trained on (held-out stories and conversations by turns), in five ways that take turns in a random
order: by an engine without a drafter, by another one (*again*), and by one engine with a drafter
whose planner is exchanged for each turn: it *never* drafts, has all drafts verified (*fixed*), or
is the drafter's own (*planned*). In a turn texts grow by so many tokens on average, behind a first
step that does not count. So what is compared is the time that tokens take within a second or two,
and whatever else the machine does meets all alike; each way sees all lengths of text equally often.
Seconds are of processor time, of all threads together; one thread computes.

Compared are the median of the turns' ratios, and the time of all turns together, in which with
planned drafts the trials count that happened to fall into them: there is one in many turns, since
it may cost 1/256 of the time. Intervals hold the true ratio with 95 % certainty: turns are drawn
again and again from those that were. Engines differ, as each has its weights and pages elsewhere in
memory: *again* shows by how much. Where two ways share an engine, that falls out.

With the planned budget, a table of fitted temperatures may be given. The shares say what became of
the drafts: how many of a sequence and step were drafted, verified and accepted, and how many steps
ran a round or verified nothing.
"""

import random
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from deepinfer_core.engine.drafts.host import VerifyAll
from planned_turns import TURNS_OF_A_TEXT, Machine, Never, Turns, Watched
from record import figure, options, write

SEQUENCES = (16, 32, 48, 60, 72, 96)
DRAFTS = 5
COMPARED: dict[str, tuple[str, ...]] = {
    "plain": (),
    "again": ("plain",),
    "never": ("plain",),
    "fixed": ("plain", "never"),
    "planned": ("plain", "never", "fixed"),
}
"""The ways, and with what each is compared."""
WARMING_S = {"plain": 0.3, "again": 0.3, "never": 0.3, "fixed": 0.5, "planned": 3.0}
RESAMPLES = 1000


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
    bare = sum(step.rows == step.sequences for step in steps)
    whole_s = sum(step.step_s for step in steps)
    found = {
        "drafted": drafted / each,
        "verified": turns.verified / each,
        "accepted": turns.tokens / each - 1,
        "steps_with_a_round": sum(step.drafted for step in steps) / len(steps),
        "steps_that_verify_nothing": bare / len(steps),
        "time_of_rounds": sum(step.round_s or 0.0 for step in steps) / whole_s,
    }
    return {name: round(value, 3) for name, value in found.items()}


class Row:
    """All ways of decoding so many texts.

    Args:
        count: texts.
        args: of the command line.
    """

    def __init__(self, count: int, args: Any) -> None:
        self._chance = random.Random(count)
        machines = {}
        for name in self._chance.sample(("plain", "again", "drafting"), 3):
            machines[name] = Machine(count, args, has_drafter=name == "drafting")
        drafting = machines["drafting"].llm.engine.batch.drafting
        assert drafting is not None
        planners = {"never": Never(), "fixed": VerifyAll(), "planned": drafting.planner}
        self._ways = {
            name: (machines.get(name, machines["drafting"]), Watched(planners[name]))
            if name in planners
            else (machines[name], None)
            for name in COMPARED
        }
        self._machines = machines.values()
        self._count = count

    def compared(self, temperature: float, seconds: float) -> list[dict[str, object]]:
        """Figures at one temperature.

        Args:
            temperature: of all texts.
            seconds: of processor time, of all ways together; a little more, for whole texts.
        """
        for machine in self._machines:
            machine.begin(temperature)
        for name, (machine, planner) in self._ways.items():
            began_s = time.process_time()
            while time.process_time() - began_s < WARMING_S[name]:
                machine.turn(Turns(), planner)
        for machine in self._machines:
            machine.begin(temperature)
        turns = {name: Turns() for name in COMPARED}
        began_s, rounds = time.process_time(), 0
        while time.process_time() - began_s < seconds or rounds % TURNS_OF_A_TEXT:
            for name in self._chance.sample(list(COMPARED), len(COMPARED)):
                machine, planner = self._ways[name]
                machine.turn(turns[name], planner)
            rounds += 1
        return [self._figure(name, turns, temperature) for name in COMPARED]

    def close(self) -> None:
        """End all engines."""
        for machine in self._machines:
            machine.stop()
            machine.llm.close()

    def _figure(self, name: str, turns: dict[str, Turns], temperature: float) -> dict[str, object]:
        own = turns[name]
        full = f"decoding.{name}[temperature={temperature:g},sequences={self._count}]"
        against = {
            f"against_{other}": ratio(own.token_s, turns[other].token_s, full)
            for other in COMPARED[name]
        }
        speed = round(1 / fmean(own.token_s), 1)
        return figure(
            full, speed, "tokens/s", **against, shares=shares(own), rounds=len(own.token_s)
        )


def main() -> None:
    """Compare at every number of sequences, and store."""
    parser = options(__doc__)
    parser.add_argument("--sequences", type=int, nargs="+", default=SEQUENCES)
    parser.add_argument("--seconds", type=float, default=15.0, help="of a row, all ways")
    parser.add_argument("--temperatures", type=float, nargs="+", default=(0.0, 1.0))
    parser.add_argument("--rule", default="match")
    parser.add_argument("--asynchronous", action="store_true")
    parser.add_argument("--calibration", type=Path)
    args = parser.parse_args()
    figures = []
    for count in args.sequences:
        row = Row(count, args)
        for temperature in args.temperatures:
            figures += row.compared(temperature, args.seconds)
        row.close()
    write("planned_drafts.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
