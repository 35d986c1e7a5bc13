"""How long do steps and draft rounds of every size take on this machine?

All sizes are run one after the other, twice through: first each twice to warm up (once to plan,
once to be recorded, where steps are) and twice for the clock, then each once to warm up and twice
for the clock. The fastest of its four runs is what a size takes: other work on the machine only
adds to a run, and what lasts longer than the runs of one size seldom meets it both times. What is
left may still say that a larger step is faster than a smaller one, which only noise can say, so
times are made to rise: each stretch that falls gets its mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deepinfer_core.interfaces.draft_planner import StepTimer
from deepinfer_core.schedule.speculation_costs import CostCurve

__all__ = ["MeasuredCosts", "measure", "rising", "round_sizes", "row_sizes"]

_WARMING_RUNS = (2, 1)
_RUNS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCosts:
    """What was measured.

    Attributes:
        steps: decode steps, by rows.
        rounds: draft rounds, by sequences.
    """

    steps: CostCurve
    rounds: CostCurve


def row_sizes(most: int) -> tuple[int, ...]:
    """Numbers of rows worth measuring where steps are not padded to recorded sizes.

    Powers of two up to 8, from there in steps of a quarter of the power of two below: 29 sizes
    reach 576 rows. A total is always one of these, so that few sizes of step come about at all.
    """
    sizes, size = [], 1
    while size < most:
        sizes.append(size)
        size += size if size < 8 else (1 << size.bit_length() - 1) // 4
    return (*sizes, most)


def round_sizes(most: int) -> tuple[int, ...]:
    """Numbers of sequences that rounds are padded to: powers of two; the last one is all."""
    return (*(1 << power for power in range((most - 1).bit_length())), most)


def measure(timer: StepTimer, rows: Sequence[int], sequences: Sequence[int]) -> MeasuredCosts:
    """Measure both curves.

    Args:
        timer: runs the work.
        rows: sizes of steps, ascending.
        sequences: sizes of draft rounds, ascending.
    """
    return MeasuredCosts(
        steps=_curve(timer.step, rows),
        rounds=_curve(timer.round, sequences),
    )


def rising(times: Sequence[float]) -> tuple[float, ...]:
    """The rising sequence that is nearest in the sum of squares.

    Source: the pool-adjacent-violators algorithm.
    """
    pools: list[tuple[float, int]] = []
    for time in times:
        total, count = time, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before, size = pools.pop()
            total, count = total + before, count + size
        pools.append((total, count))
    return tuple(total / count for total, count in pools for _ in range(count))


def _curve(run_s: Callable[[int], float], sizes: Sequence[int]) -> CostCurve:
    fastest_s = [float("inf")] * len(sizes)
    for warming_runs in _WARMING_RUNS:
        for number, size in enumerate(sizes):
            for _ in range(warming_runs):
                run_s(size)
            fastest_s[number] = min(fastest_s[number], *[run_s(size) for _ in range(_RUNS)])
    return CostCurve(rows=tuple(sizes), milliseconds=rising([1e3 * one_s for one_s in fastest_s]))
