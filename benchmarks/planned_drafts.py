"""Is planned drafting ever slower than decoding without drafts, or with all five verified?

So many texts are decoded at once, each behind an opening of its own that the model was never
trained on (held-out stories and conversations by turns), by one engine in four ways that take
turns: its drafter is put aside, so that the engine is one without (*plain*); its planner is
exchanged for one that *never* drafts, which is the control, since it is the same engine with the
drafter, or has all drafts verified (*fixed*); or it is the drafter's own (*planned*). In a turn
texts grow by so many tokens on average, behind a few steps that do not count (``planned_turns``).
Two such rounds have the same texts and order; orders are a Latin square, another one for every four
texts, so that each way sees each part of a text equally often. Seconds are of processor time, of
all threads together; one thread computes.

Compared are the seconds a token of the turns of one square that saw the same part of a text, since
more drafts are right in some parts than in others (``paired_ratios``). On a machine that others
use, too, a burst may take longer than all turns of a way, so a sum says more of the burst than of
the way, and its interval is wide. What is judged is the estimate that hardly heeds bursts, by the
interval of that estimate. Trials fall into few turns and are not heeded either: so the most that
they cost for good, 1/256 of the time, is taken off before planned drafts are judged. What they cost
in this run is in ``all``, the ratio of whole times.

Planned drafting *holds* against another way if it is no more than 2 % slower, by the low end of the
interval; it *fails* if it is, by the high end; else the run has not decided, whatever the estimate
is. So noise lets nothing pass: a row goes on, up to a limit, until it is decided against plain and
fixed; the one that is decided first takes no more turns. There are at most five looks at a row,
each with an interval of 99 %, so that all of them are right with 95 %. *never* is judged alike, and
decides nothing.

With the planned budget, a table of fitted temperatures may be given. The shares say what became of
the drafts: how many of a sequence and step were drafted, verified and accepted, how many steps ran
a round or verified nothing, and which part of the time went into rounds and into planning.
"""

import gc
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from deepinfer_core.engine.drafts.host import VerifyAll
from paired_ratios import Ratio, ratio
from planned_turns import Machine, Never, Turns, Watched
from record import figure, options, write

SEQUENCES = (16, 32, 48, 60, 72, 96)
DRAFTS = 5
COMPARED: dict[str, tuple[str, ...]] = {
    "plain": (),
    "never": ("plain",),
    "fixed": ("plain", "never"),
    "planned": ("plain", "never", "fixed"),
}
"""The ways, and with what each is compared."""
DECIDING = ("plain", "fixed")
"""What planned drafting is to be as good as."""
LEAST = 0.98
TRIALS = 1 / 256
"""Of the time, which planners may spend on trials for good."""
WARMING_S = {"plain": 0.3, "never": 0.3, "fixed": 0.5, "planned": 6.0}
ROUNDS = 12
"""At least, however long they take."""
ROUNDS_OF_A_TEXT = 2
LOOKS = 5
"""At a row, at most."""


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
        "time_of_planning": turns.planning_s / whole_s,
    }
    return {name: round(value, 4) for name, value in found.items()}


def verdict(found: Mapping[str, Ratio]) -> dict[str, str]:
    """Whether planned drafting is no more than 2 % slower than other ways, trials included.

    Args:
        found: how many times as fast it is, by other way; trials are not heeded.

    Returns:
        What is said of each of them, and of the row, which those of ``DECIDING`` decide:
        ``holds``, ``fails`` or ``undecided``.
    """
    said = {name: _said(one) for name, one in found.items()}
    deciding = {said[name] for name in DECIDING}
    row = next((one for one in ("fails", "undecided") if one in deciding), "holds")
    return {**said, "row": row}


def _said(found: Ratio) -> str:
    low, high = found.low * (1 - TRIALS), found.high * (1 - TRIALS)
    return "holds" if low >= LEAST else "fails" if high < LEAST else "undecided"


def looks(least: float, most: float) -> list[float]:
    """Times at which a row is looked at, each the same number of times as late as the last."""
    return [least * (most / least) ** (number / (LOOKS - 1)) for number in range(LOOKS)]


def squares(names: list[str], chance: random.Random) -> Iterator[list[str]]:
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

    def compared(self, temperature: float, looks_s: Sequence[float]) -> list[dict[str, object]]:
        """Figures at one temperature.

        Args:
            temperature: of all texts.
            looks_s: processor time after which it is seen whether the row is decided; a little more
                passes, for whole texts.
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
        names, began_s = list(COMPARED), time.process_time()
        for look_s in looks_s:
            while len(turns["planned"].token_s) < ROUNDS or time.process_time() < began_s + look_s:
                self._take_square(turns, names, temperature)
            said = verdict(against("planned", turns))
            if said["row"] != "undecided":
                break
            names = [name for name in names if name not in DECIDING or said[name] == "undecided"]
        machine.stop()
        gc.unfreeze()
        return [self._figure(name, turns, temperature) for name in COMPARED]

    def _take_square(self, turns: dict[str, Turns], names: list[str], temperature: float) -> None:
        """Let each way see each part of a text once; turns go by part, not by time."""
        parts: dict[str, list[int]] = {name: [] for name in names}
        for order in squares(names, self._chance):
            self._machine.begin(temperature)
            for part, name in enumerate(order * ROUNDS_OF_A_TEXT):
                self._machine.turn(turns[name], self._ways[name])
                parts[name].append(part)
        for name, seen in parts.items():
            token_s = turns[name].token_s
            by_part = sorted(zip(seen, token_s[-len(seen) :], strict=True))
            token_s[-len(seen) :] = [each for _, each in by_part]

    def close(self) -> None:
        """End the engine."""
        self._machine.llm.close()

    def _figure(self, name: str, turns: dict[str, Turns], temperature: float) -> dict[str, object]:
        own, found = turns[name], against(name, turns)
        compared: dict[str, object] = {
            f"against_{other}": {**one.rounded(), "all": whole(*rounds(own, turns[other]))}
            for other, one in found.items()
        }
        judged = {"verdict": verdict(found)} if name == "planned" else {}
        return figure(
            f"decoding.{name}[temperature={temperature:g},sequences={self._count}]",
            round(1 / median(own.token_s), 1), "tokens/s", **judged, **compared,
            shares=shares(own), rounds=len(own.token_s),
        )  # fmt: skip


def against(name: str, turns: Mapping[str, Turns]) -> dict[str, Ratio]:
    """How many times as fast a way is as those that it is compared with."""
    return {other: ratio(*rounds(turns[name], turns[other])) for other in COMPARED[name]}


def rounds(one: Turns, other: Turns) -> tuple[list[float], list[float]]:
    """Seconds a token in the rounds that both were in; who takes no more turns was in the first."""
    both = min(len(one.token_s), len(other.token_s))
    return one.token_s[:both], other.token_s[:both]


def whole(one_s: Sequence[float], other_s: Sequence[float]) -> float:
    """How many times as fast the first is, over all turns together."""
    return round(sum(other_s) / sum(one_s), 4)


def main() -> None:
    """Compare at every number of sequences, and store."""
    parser = options(__doc__)
    parser.add_argument("--sequences", type=int, nargs="+", default=SEQUENCES)
    parser.add_argument("--seconds", type=float, default=15.0, help="of a row, at least")
    parser.add_argument("--most-seconds", type=float, default=40.0, help="of an undecided row")
    parser.add_argument("--temperatures", type=float, nargs="+", default=(0.0, 1.0))
    parser.add_argument("--rule", default="match")
    parser.add_argument("--asynchronous", action="store_true")
    parser.add_argument("--calibration", type=Path)
    args = parser.parse_args()
    figures = []
    for count in args.sequences:
        row = Row(count, args)
        for temperature in args.temperatures:
            figures += row.compared(temperature, looks(args.seconds, args.most_seconds))
        row.close()
    write("planned_drafts.json", figures, is_record=args.record)


if __name__ == "__main__":
    main()
