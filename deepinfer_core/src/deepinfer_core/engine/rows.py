"""What does the engine ask of the runner for each sampled row, and what comes back?

Plain values, so that the step loop is tested without a model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from deepinfer_core.schedule.plan import StepPlan

__all__ = ["RowRequest", "RowResult", "Runner"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRequest:
    """One row of the step whose logits become a token.

    Attributes:
        row: index among all rows of the step.
        position: absolute position of the token that is drawn.
        seed: unsigned 64-bit seed of the request.
        temperature, top_p, top_k, min_p: as in ``SamplingParams``.
        forced: token to emit in place of the draw, or None.
        banned: tokens that must not be drawn.
        allowed: tokens of which one is drawn, if it is not banned; None: all.
        bias: token and what is added to its logit; no token twice.
        repetition_penalty, frequency_penalty, presence_penalty: as in ``SamplingParams``.
        seen: token before the row, and how often it stands in the output; no token twice, and only
            those that a penalty of the row concerns.
        alternatives: how many of the likeliest tokens to report.
    """

    row: int
    position: int
    seed: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    forced: int | None = None
    banned: tuple[int, ...] = ()
    allowed: tuple[int, ...] | None = None
    bias: tuple[tuple[int, float], ...] = ()
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seen: tuple[tuple[int, int], ...] = ()
    alternatives: int = 0

    def allows_any(self, vocabulary: int) -> bool:
        """Whether some token of so many may be drawn."""
        tokens = range(vocabulary) if self.allowed is None else self.allowed
        return not set(self.banned).issuperset(tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowResult:
    """What one sampled row gave.

    Attributes:
        token_id: the token.
        logprob: its log-probability under the model's own distribution.
        processed_logprob: the same under the distribution that was drawn from.
        top: (token, log-probability) of the likeliest tokens of the model's own distribution.
        invalid: the logits held NaN or infinity, or nothing was allowed; the rest means nothing.
    """

    token_id: int
    logprob: float
    processed_logprob: float
    top: tuple[tuple[int, float], ...] = ()
    invalid: bool = False


class Runner(ABC):
    """Runs steps; one model on one device, or a stand-in for it."""

    @abstractmethod
    def execute(self, plan: StepPlan, rows: tuple[RowRequest, ...]) -> tuple[RowResult, ...]:
        """Feed the rows of a plan and sample some of them.

        Args:
            plan: all rows of the step.
            rows: the rows to sample, ascending.

        Returns:
            One result for each of ``rows``.
        """
