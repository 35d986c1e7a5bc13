"""By which temperatures must confidences be divided to be true?

Sequential temperature scaling: from the first draft to the last, each gets the temperature under
which the *survival* up to it (the product of the confidences so far, those before it already
scaled) predicts best whether the draft survived. What is made small is the cross-entropy, which is
smooth; the calibration error, which is what people read, is reported before and after.

Shapes: B recorded blocks, n drafts of each.

Source: the DSpark paper, which searches a grid for the smallest calibration error.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from deepinfer_dspark.confidence import confidences

__all__ = ["BlockRecords", "Fit", "calibration_error", "fit", "survival"]

_LOWEST, _HIGHEST = 1 / 32, 32.0
_GRID_STEPS = 200
"""From 1 / 32 to 32 by a factor of 1.035; between two steps a parabola finds the lowest point."""

_BINS = 15
_FEWEST_BLOCKS = 100
"""With fewer a temperature says more about the sample than about the drafter: the standard error of
a mean of 100 hits or misses is up to 0.05."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRecords:
    """What became of recorded blocks.

    Attributes:
        logit_Bn: fp64, logits of the confidences, as the network gave them.
        verified_B: int64, drafts that were verified.
        accepted_B: int64, of these, how many in front were right.
    """

    logit_Bn: torch.Tensor
    verified_B: torch.Tensor
    accepted_B: torch.Tensor

    def known(self, draft: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Which blocks tell about a draft, and whether it survived there.

        A block of which fewer drafts were verified does not: that it failed earlier may be known,
        but had it not failed, nothing would be.
        """
        known_B = self.verified_B > draft
        return known_B, (self.accepted_B > draft)[known_B].double()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Temperatures and what they are good for.

    Attributes:
        temperatures: one a draft.
        blocks: recorded ones that told about each draft.
        error_before: calibration error of each draft's survival with the temperatures before.
        error_after: the same with the fitted ones.
    """

    temperatures: tuple[float, ...]
    blocks: tuple[int, ...]
    error_before: tuple[float, ...]
    error_after: tuple[float, ...]


def survival(logit_Bn: torch.Tensor, temperatures: tuple[float, ...]) -> torch.Tensor:
    """Estimated survival of every draft, [B, n], fp64."""
    temperature_n = torch.tensor(temperatures, dtype=torch.float64)
    return confidences(logit_Bn.double(), temperature_n).cumprod(dim=1)


def fit(records: BlockRecords, before: tuple[float, ...]) -> Fit:
    """Fit a temperature for each draft.

    Args:
        records: the more the better; 100 that tell about the last draft at least.
        before: temperatures in use, for the comparison.

    Raises:
        ValueError: a draft was seen too rarely.
    """
    count = records.logit_Bn.shape[1]
    told = tuple(int((records.verified_B > draft).sum()) for draft in range(count))
    if min(told) < _FEWEST_BLOCKS:
        raise ValueError(
            f"draft {told.index(min(told)) + 1} was verified {min(told)} times, "
            f"fewer than the {_FEWEST_BLOCKS} that a temperature takes"
        )
    temperatures: list[float] = []
    reach_B = torch.ones(records.logit_Bn.shape[0], dtype=torch.float64)
    for draft in range(count):
        known_B, survived_K = records.known(draft)
        logit_B = records.logit_Bn[:, draft].double()
        best = _lowest(logit_B[known_B], reach_B[known_B], survived_K)
        temperatures.append(best)
        reach_B = reach_B * confidences(logit_B, torch.tensor(best))
    found = tuple(temperatures)
    return Fit(
        temperatures=found,
        blocks=told,
        error_before=_errors(records, before),
        error_after=_errors(records, found),
    )


def calibration_error(estimate_K: torch.Tensor, outcome_K: torch.Tensor) -> float:
    """Expected calibration error: the mean gap of estimates and outcomes in 15 equal bins.

    Args:
        estimate_K: probabilities.
        outcome_K: 0 or 1, or a probability.
    """
    bin_K = (estimate_K * _BINS).long().clamp(max=_BINS - 1)
    gaps = torch.zeros(_BINS, dtype=torch.float64)
    gaps.index_add_(0, bin_K, (estimate_K - outcome_K).double())
    return float(gaps.abs().sum() / len(estimate_K))


def _errors(records: BlockRecords, temperatures: tuple[float, ...]) -> tuple[float, ...]:
    estimate_Bn = survival(records.logit_Bn, temperatures)
    errors = []
    for draft in range(estimate_Bn.shape[1]):
        known_B, survived_K = records.known(draft)
        errors.append(calibration_error(estimate_Bn[known_B, draft], survived_K))
    return tuple(errors)


def _lowest(logit_K: torch.Tensor, reach_K: torch.Tensor, survived_K: torch.Tensor) -> float:
    """The temperature of lowest cross-entropy."""
    step = (_HIGHEST / _LOWEST) ** (1 / _GRID_STEPS)
    losses = []
    for number in range(_GRID_STEPS + 1):
        temperature = torch.tensor(_LOWEST * step**number)
        estimate_K = reach_K * confidences(logit_K, temperature)
        # 1 - 1e-12 at most, so that a certain estimate that failed costs much and not everything.
        estimate_K = estimate_K.clamp(1e-12, 1 - 1e-12)
        losses.append(
            -float(
                (survived_K * estimate_K.log() + (1 - survived_K) * (-estimate_K).log1p()).mean()
            )
        )
    best = losses.index(min(losses))
    offset = 0.0
    if 0 < best < _GRID_STEPS:
        left, middle, right = losses[best - 1 : best + 2]
        bend = left - 2 * middle + right
        offset = (left - right) / (2 * bend) if bend > 0 else 0.0
    return float(_LOWEST * step ** (best + offset))
