"""Who decides how many drafts a step verifies, and what is it told?

Plain data, so that planning needs no tensors library. What it may look at, and when, is a matter of
correctness under the ratio rule: ``schedule.speculation`` says why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

__all__ = [
    "AcceptanceRule",
    "DraftOutcome",
    "DraftPlanner",
    "DraftView",
    "StepTimer",
    "StepTimes",
]

AcceptanceRule = Literal["match", "ratio"]
"""``match`` keeps a draft if the ordinary draw at its row gives the same token, so that the output
is the one of decoding without drafts; ``ratio`` keeps more of them, and the law of the output."""


class DraftOutcome(NamedTuple):
    """What became of a sequence's drafts in one step.

    Attributes:
        verified: drafts that were fed.
        accepted: of these, how many in front were kept.
        confidences: of all drafts of the round; empty if there are none.
        raw: the same of ``Drafts.raw_Qn``.
        overlaps: by verified draft that was reached, the probability with which the ratio rule
            accepts a draft drawn there; empty under the match rule.
    """

    verified: int
    accepted: int
    confidences: tuple[float, ...] = ()
    raw: tuple[float, ...] = ()
    overlaps: tuple[float, ...] = ()


class DraftView(NamedTuple):
    """The drafts of one decoding sequence as a planner sees them.

    Attributes:
        drafts: how many a step could verify; 0 if it has none.
        newest: survival of the drafts of the newest round whose confidences the host has; None if
            it has none of this sequence. Not cut to ``drafts``. Survival of a draft is the product
            of the confidences up to its own.
        before: the same of the round before that.
        is_current: whether ``newest`` is of the very drafts to be verified. It is not while the
            step that drew them is still in flight; then it is of the round before.
    """

    drafts: int
    newest: Sequence[float] | None = None
    before: Sequence[float] | None = None
    is_current: bool = True


class StepTimes(NamedTuple):
    """How long one step took that verified drafts or could have, in seconds.

    Attributes:
        sequences: that decoded.
        rows: of the step.
        step_s: from the end of the step before to its own end.
        drafted: whether a draft round was run in it.
        round_s: of that time, the draft round; None where nobody can tell, or there was none.
        tokens: that came of it; None: one for each sequence.
    """

    sequences: int
    rows: int
    step_s: float
    drafted: bool
    round_s: float | None = None
    tokens: int | None = None


class StepTimer(Protocol):
    """Runs work of a size on pages that nobody reads, and waits for its end."""

    def step(self, rows: int) -> float:
        """Run a decode step, draws included, with as little context as can be; seconds."""

    def round(self, sequences: int) -> float:
        """Run a draft round; seconds."""


class DraftPlanner(ABC):
    """Says how many drafts a step verifies. Called by the step loop, so it must be quick."""

    @abstractmethod
    def rows(self, views: Sequence[DraftView], *, other_rows: int) -> Sequence[int]:
        """Say how many rows each sequence feeds.

        Args:
            views: the sequences that decode, at least one.
            other_rows: rows of prompts that wait for the same step, at most.

        Returns:
            For each: its anchor and some of its drafts, 1 up to ``drafts`` + 1. The engine may feed
            fewer, where blocks or rows are short.
        """

    @abstractmethod
    def drafts_next(self) -> bool:
        """Whether a draft round is run behind the step that ``rows`` was last asked about."""

    def rest(self) -> int:
        """For how many steps nothing is to be decided; asked where nobody has drafts or gets some.

        So many steps of the same sequences are those of an engine without a drafter, and ``rows``
        is called behind them, or earlier if somebody enters or ends.
        """
        return 0

    def shares(self) -> tuple[float, ...] | None:
        """Whether the device may share out the rows that ``rows`` gave last, once more.

        Where a step is planned while its drafts are being drawn, the device has newer confidences
        than the planner. The sum of the rows stays.

        Returns:
            Factors by which survival is to be corrected, one for each draft of a round; None: rows
            stay where they are.
        """
        return None

    def learn(self, outcomes: Sequence[DraftOutcome]) -> None:  # noqa: B027 - may not care
        """Take what became of the drafts of one step."""

    def took(self, times: StepTimes) -> None:  # noqa: B027 - may not care
        """Take how long a step took; all that ended are told before ``rows`` is called again."""
