"""A machine on which drafting is so many times as fast as decoding without, and steps fluctuate."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, repeat
from math import exp
from operator import mul

from deepinfer_core.interfaces.draft_planner import DraftOutcome, DraftView, StepTimes
from deepinfer_core.schedule.speculation_costs import CostCurve
from deepinfer_dspark.measuring import MeasuredCosts, round_sizes, row_sizes
from deepinfer_dspark.planner import DsparkPlanner

DRAFTS = 5
STEP_SPREAD, DISTURBED, DISTURBANCE = 0.04, 0.03, 2.0
"""Of the time of single steps; the part that a garbage collector or another program doubles."""
SLOW_SPREAD, SLOW_KEPT = 0.01, 0.995
"""Of the machine: a walk that forgets half in 140 steps, and so has a spread of a tenth."""
CURVE_ERROR = 1.3
"""Steps with drafts were measured on a busy machine."""
PRICE_OF_ROWS = 0.15
"""What as many rows more as there are sequences add to a step."""


@dataclass
class Lost:
    """What a run gave.

    Attributes:
        ms: that the steps took but for noise.
        best_ms: in which the better way would have given as many tokens, in the mean.
        drafted: for each step, whether a round was run.
    """

    ms: float = 0.0
    best_ms: float = 0.0
    drafted: list[bool] = field(default_factory=list)

    @property
    def share(self) -> float:
        return 1 - self.best_ms / self.ms


class NoisyMachine:
    """Decodes alike sequences.

    Args:
        sequences: that decode.
        ratio: how many times as fast drafting is, at the best number of rows.
        survives: probability that a draft is accepted if all before it are.
        name: seeds what is drawn.
    """

    def __init__(self, sequences: int, ratio: float, *, survives: float = 0.85, name: str) -> None:
        self.sequences = sequences
        self.said = self.survives = survives
        self._chance = random.Random(name)
        self.plain_ms = 5 + sequences / 20
        self._sizes = row_sizes((1 + DRAFTS) * sequences)
        self._round_ms = 0.0
        low_ms, high_ms = 0.0, 100 * self.plain_ms
        for _ in range(50):
            self._round_ms = (low_ms + high_ms) / 2
            if self._drafting_speed() > ratio * sequences / self.plain_ms:
                low_ms = self._round_ms
            else:
                high_ms = self._round_ms
        times_ms = [
            self._step_ms(rows) * (CURVE_ERROR if rows > sequences else 1) for rows in self._sizes
        ]
        rounds = round_sizes(sequences)
        self.planner = DsparkPlanner(
            MeasuredCosts(
                steps=CostCurve(rows=self._sizes, milliseconds=tuple(times_ms)),
                rounds=CostCurve(rows=rounds, milliseconds=(self._round_ms,) * len(rounds)),
            ),
            DRAFTS,
        )
        self._slow, self._rest, self._has_drafts = 0.0, 0, False

    def run(self, steps: int) -> Lost:
        """Decode so many steps as planned."""
        lost = Lost()
        best = max(self._drafting_speed(), self.sequences / self.plain_ms)
        for _ in range(steps):
            rows, is_drafted = self._decided()
            kept = [self._accepted(one - 1) for one in rows]
            step_ms, round_ms = self._step_ms(sum(rows)), self._round_ms * is_drafted
            lost.ms += step_ms + round_ms
            lost.best_ms += sum(map(self._expected, rows)) / best
            lost.drafted.append(is_drafted)
            confidences = (self.said,) * DRAFTS
            self.planner.learn(
                [
                    DraftOutcome(one - 1, good, confidences)
                    for one, good in zip(rows, kept, strict=True)
                    if one > 1
                ]
            )
            noise_s = self._noise() / 1e3
            tokens, round_s = len(rows) + sum(kept), round_ms * noise_s or None
            whole_s = (step_ms + round_ms) * noise_s
            self.planner.took(
                StepTimes(self.sequences, sum(rows), whole_s, is_drafted, round_s, tokens)
            )
            self._has_drafts = is_drafted
        return lost

    def _decided(self) -> tuple[Sequence[int], bool]:
        if self._rest:
            self._rest -= 1
            return (1,) * self.sequences, False
        said = tuple(accumulate(repeat(self.said, DRAFTS), mul))
        view = DraftView(DRAFTS, said, said) if self._has_drafts else DraftView(0)
        rows = self.planner.rows([view] * self.sequences, other_rows=0)
        is_drafted = self.planner.drafts_next()
        if not (is_drafted or self._has_drafts):
            self._rest = self.planner.rest()
        return rows, is_drafted

    def _accepted(self, verified: int) -> int:
        chance, survives, kept = self._chance.random, self.survives, 0
        while kept < verified and chance() < survives:
            kept += 1
        return kept

    def _expected(self, rows: int) -> float:
        return sum(self.survives**place for place in range(rows))

    def _step_ms(self, rows: int) -> float:
        return self.plain_ms * (1 + PRICE_OF_ROWS * (rows / self.sequences - 1))

    def _drafting_speed(self) -> float:
        """Tokens a millisecond at the best number of rows; drafts are alike."""
        speeds = []
        for rows in self._sizes:
            each, more = divmod(rows, self.sequences)
            if rows > self.sequences:
                tokens = self.sequences * self._expected(each) + more * self.survives**each
                speeds.append(tokens / (self._step_ms(rows) + self._round_ms))
        return max(speeds)

    def _noise(self) -> float:
        chance = self._chance
        self._slow = SLOW_KEPT * self._slow + chance.gauss(0, SLOW_SPREAD)
        disturbed = DISTURBANCE if chance.random() < DISTURBED else 1.0
        return exp(self._slow + chance.gauss(0, STEP_SPREAD)) * disturbed
