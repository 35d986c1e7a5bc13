"""What does the engine ask of the runner, and what comes back?

Plain values, so that the step loop is tested without a model. A step takes two launches, because
the tokens of the step before decide what may be drawn in this one, but not what is fed: first the
forward pass is launched, then, when the engine has seen those tokens, the sampling, and behind it
the round of drafts for the next step.

The values of one row are named tuples: a step makes several hundred.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from deepinfer_core.schedule.plan import StepPlan

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "DraftRequest",
    "DraftResult",
    "Drafted",
    "RowRequest",
    "RowResult",
    "RowSettings",
    "Runner",
    "StepHandle",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSettings:
    """What holds for every drawn row of a request.

    Attributes:
        seed: unsigned 64-bit seed of the request.
        temperature, top_p, top_k, min_p: as in ``SamplingParams``.
        allowed: tokens of which one is drawn, if it is not banned; None: all.
        bias: token and what is added to its logit; no token twice.
        repetition_penalty, frequency_penalty, presence_penalty: as in ``SamplingParams``.
        alternatives: how many of the likeliest tokens to report.
    """

    seed: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    allowed: tuple[int, ...] | None = None
    bias: tuple[tuple[int, float], ...] = ()
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    alternatives: int = 0


class RowRequest(NamedTuple):
    """One row of the step whose logits become a token.

    Attributes:
        row: place among the rows whose logits the plan wants.
        position: absolute position of the token that is drawn.
        settings: of the request.
        forced: token to emit in place of the draw, or None.
        banned: tokens that must not be drawn.
        seen: token before the row, and how often it stands in the output; no token twice, and only
            those that a penalty of the row concerns.
        draft: token that is fed behind the row and verified by it; -1: none.
        law_row: row of the kept laws that the draft was drawn from; -1: it was certain.
        mask: int32 words, bit i of word w allows token 32 * w + i; None allows all.
    """

    row: int
    position: int
    settings: RowSettings
    forced: int | None = None
    banned: tuple[int, ...] = ()
    seen: tuple[tuple[int, int], ...] = ()
    draft: int = -1
    law_row: int = -1
    mask: npt.NDArray[np.int32] | None = None

    def allows_any(self, vocabulary: int) -> bool:
        """Whether some token of so many may be drawn."""
        allowed = self.settings.allowed
        tokens: Iterable[int] = range(vocabulary) if allowed is None else allowed
        if self.mask is not None:
            bits = self.mask.view("uint32").tolist()
            tokens = [token for token in tokens if bits[token // 32] >> (token % 32) & 1]
        return not set(self.banned).issuperset(tokens)


class RowResult(NamedTuple):
    """What one sampled row gave.

    Attributes:
        token_id: the token.
        logprob: its log-probability under the model's own distribution.
        processed_logprob: the same under the distribution that was drawn from.
        top: (token, log-probability) of the likeliest tokens of the model's own distribution.
        invalid: the logits held NaN or infinity, or nothing was allowed; the rest means nothing.
        accepted: the token is the draft behind the row, which is kept.
        overlap: under the ratio rule, how likely a draft of that law was to be accepted.
    """

    token_id: int
    logprob: float
    processed_logprob: float
    top: tuple[tuple[int, float], ...] = ()
    invalid: bool = False
    accepted: bool = False
    overlap: float = 0.0


class DraftRequest(NamedTuple):
    """A sequence that is drafted for, behind the sampling of a step.

    Attributes:
        place: of the sequence.
        first: place of the first of its rows among those that are sampled.
        rows: how many it has: one, and one for each draft that is verified.
        start: absolute position of the first of them.
        state_slot: of the sequence.
        valid_start: first position whose window keys exist.
        settings: how drafts are drawn.
        banned: tokens that no draft need be.
    """

    place: int
    first: int
    rows: int
    start: int
    state_slot: int
    valid_start: int
    settings: RowSettings
    banned: tuple[int, ...] = ()


class DraftResult(NamedTuple):
    """The drafts of one sequence.

    Attributes:
        token_ids: one after the other.
        confidences: of all drafts of a round, whether there are so many or not; none if the drafter
            gives none.
        raw: see ``Drafts.raw_Qn``.
    """

    token_ids: tuple[int, ...]
    confidences: tuple[float, ...] = ()
    raw: tuple[float, ...] = ()


class Drafted(NamedTuple):
    """What a step did for speculation.

    Attributes:
        results: one for each request.
        round_s: seconds of the round; None: not known, or there was none.
    """

    results: tuple[DraftResult, ...] = ()
    round_s: float | None = None


class StepHandle:
    """A step under way; each runner keeps in it what it needs."""

    __slots__ = ()


class Runner(ABC):
    """Runs steps; one model on one device, or a stand-in for it."""

    @abstractmethod
    def launch(self, plan: StepPlan, before: StepHandle | None) -> StepHandle:
        """Queue the copies and the forward pass of a step, and return.

        Args:
            plan: all rows of the step.
            before: the step that draws the tokens which the plan leaves open; None if it leaves
                none. Its sampling was queued. Where that step failed, the open tokens mean nothing,
                and nothing may be raised for it here or in ``results``.
        """

    def shared_rows(self, step: StepHandle) -> tuple[int, ...] | None:
        """Rows of each sequence, where the device shared them out; None: they are as planned.

        Waits until that is known, which is before the forward pass.

        Raises:
            Exception: what the step raised.
        """
        return None

    @abstractmethod
    def sample(
        self,
        step: StepHandle,
        rows: tuple[RowRequest, ...],
        wanted: tuple[DraftRequest, ...] = (),
    ) -> None:
        """Queue the sampling of a launched step and a round of drafts, and return; once a step.

        Args:
            step: from ``launch``.
            rows: the rows to sample, ascending; there may be none.
            wanted: who is drafted for; none but by a runner that drafts.
        """

    @abstractmethod
    def results(self, step: StepHandle) -> tuple[RowResult, ...]:
        """Wait for a step and return one result for each sampled row.

        Raises:
            Exception: what the step raised.
        """

    def drafted(self, step: StepHandle) -> Drafted:
        """Drafts of a step whose results were given."""
        return Drafted()

    def drain(self) -> None:  # noqa: B027 - there may be nothing to wait for
        """Wait until nothing is under way, whatever became of it."""

    def close(self) -> None:  # noqa: B027 - there may be nothing to give back
        """Drain, and give back threads and streams. May be called again."""
