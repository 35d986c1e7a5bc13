"""Is planned drafting ever slower than decoding without drafts, or with all five verified?

So many texts are decoded at once, each behind an opening of its own that the model was never
trained on (held-out stories and conversations by turns), by one engine in five ways that take
turns: its drafter is put aside, so that the engine is one without (*plain*), and once more so
(*again*); its planner is exchanged for one that *never* drafts, or has all drafts verified
(*fixed*); or it is the drafter's own (*planned*). In a turn texts grow by so many tokens on
average, behind a few steps that do not count (``planned_turns``). Each text sees all ways; their
order is a Latin square, another one for every five texts, so that each way sees each length of text
equally often, and whatever the machine does besides meets all alike. Seconds are of processor time,
of all threads together; one thread computes.

Compared are the median of the turns' ratios, and the time of all turns together, in which with
planned drafts the trials count that happened to fall into them: there is one in many turns, since
it may cost 1/256 of the time. Intervals hold the true ratio with 95 % certainty: turns are drawn
again and again from those that were. *again / plain* is the control: two ways that are one.

Planned drafting is *at least as good* as another way if the time of all its turns is no longer than
the control allows: where it cannot tell less than 2 %, less than 0.98 is worse. The record says so
for each row, and with what the control allows.

With the planned budget, a table of fitted temperatures may be given. The shares say what became of
the drafts: how many of a sequence and step were drafted, verified and accepted, and how many steps
ran a round or verified nothing.
"""

import gc
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from deepinfer_core.engine.drafts.host import VerifyAll
from planned_turns import Machine, Never, Turns, Watched
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
JUDGED = ("plain", "fixed")
"""What planned drafting is to be at least as good as."""
WARMING_S = {"plain": 0.3, "again": 0.3, "never": 0.3, "fixed": 0.5, "planned": 6.0}
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
    steps = turns.steps
    each, whole_s = sum(one.sequences for one in steps), sum(one.step_s for one in steps)
    if not steps:
        return {}
    found = {
        "drafted": DRAFTS * sum(one.sequences for one in steps if one.drafted) / each,
        "verified": sum(one.rows for one in steps) / each - 1,
        "accepted": sum(one.tokens or one.sequences for one in steps) / each - 1,
        "steps_with_a_round": sum(one.drafted for one in steps) / len(steps),
        "steps_that_verify_nothing": sum(one.rows == one.sequences for one in steps) / len(steps),
        "time_of_rounds": sum(one.round_s or 0.0 for one in steps) / whole_s,
    }
    return {name: round(value, 3) for name, value in found.items()}


def verdict(control: dict[str, Any], found: dict[str, dict[str, Any]]) -> dict[str, object]:
    """Whether planned drafting is at least as good as the others, by the time of all turns.

    Args:
        control: how two engines without a drafter compare.
        found: how planned drafting compares with each other way.
    """
    reach = max(abs(end - 1) for end in control["all_between"])
    good = {name: one["all"] >= 1 - reach for name, one in found.items()}
    return {
        "at_least": round(1 - reach, 4),
        **good,
        "is_at_least_as_good": all(good.values()),
    }


def squares(names: Sequence[str], chance: random.Random) -> Iterator[Sequence[str]]:
    """Orders of the ways, of which each has each place once."""
    first = chance.sample(names, len(names))
    for place in chance.sample(range(len(names)), len(names)):
        yield first[place:] + first[:place]


class Row:
    """All ways of decoding so many texts.

    Args:
        count: texts.
        args: of the command line.
    """

    def __init__(self, count: int, args: Any) -> None:
        self._chance = random.Random(count)
        self._machine = Machine(count, args)
        planners = {"never": Never(), "fixed": VerifyAll(), "planned": self._machine.planner}
        self._ways = {
            name: Watched(planners[name]) if name in planners else None for name in COMPARED
        }
        self._count = count

    def compared(self, temperature: float, seconds: float) -> list[dict[str, object]]:
        """Figures at one temperature.

        Args:
            temperature: of all texts.
            seconds: of processor time, of all ways together; a little more, for whole texts.
        """
        machine = self._machine
        machine.begin(temperature)
        for name, planner in self._ways.items():
            began_s = time.process_time()
            while time.process_time() - began_s < WARMING_S[name]:
                machine.turn(Turns(), planner)
        machine.begin(temperature)
        gc.collect()
        gc.freeze()  # what the engine is made of is looked through in no turn
        turns = {name: Turns() for name in COMPARED}
        began_s = time.process_time()
        while time.process_time() - began_s < seconds:
            for order in squares(list(COMPARED), self._chance):
                for name in order:
                    machine.turn(turns[name], self._ways[name])
        machine.stop()
        gc.unfreeze()
        return [self._figure(name, turns, temperature) for name in COMPARED]

    def close(self) -> None:
        """End the engine."""
        self._machine.llm.close()

    def _figure(self, name: str, turns: dict[str, Turns], temperature: float) -> dict[str, object]:
        own = turns[name]
        full = f"decoding.{name}[temperature={temperature:g},sequences={self._count}]"
        against = {
            f"against_{other}": ratio(own.token_s, turns[other].token_s, full)
            for other in COMPARED[name]
        }
        speed = round(1 / fmean(own.token_s), 1)
        judged: dict[str, object] = {}
        if name == "planned":
            control = ratio(turns["again"].token_s, turns["plain"].token_s, full)
            found = {other: against[f"against_{other}"] for other in JUDGED}
            judged = {"verdict": verdict(control, found)}
        return figure(
            full, speed, "tokens/s", **judged, **against, shares=shares(own),
            rounds=len(own.token_s),
        )  # fmt: skip


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
