"""How does the step loop speculate: who is drafted for, how much is verified, who learns from it?

The host's side; ``stage`` is the device's, where it is decided which drafts are kept. Here they are
only counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from deepinfer_core.engine.instruments import StepFacts
from deepinfer_core.engine.ranked_queue import RankedQueue
from deepinfer_core.engine.rows import Drafted, DraftRequest, RowRequest
from deepinfer_core.engine.sequence import Sequence as Text
from deepinfer_core.errors import EngineError
from deepinfer_core.interfaces.draft_planner import (
    AcceptanceRule,
    DraftOutcome,
    DraftPlanner,
    DraftView,
    StepTimes,
)
from deepinfer_core.schedule.plan import Prefix
from deepinfer_core.schedule.snapshot import SequenceView

__all__ = ["Drafting", "VerifyAll", "draft_requests"]

Learn = Callable[[Sequence[DraftOutcome]], None]


class VerifyAll(DraftPlanner):
    """The fixed budget: every draft is verified, and a round is run behind every step."""

    def rows(self, views: Sequence[DraftView], *, other_rows: int) -> Sequence[int]:
        """One row, and one for each draft."""
        return [1 + view.drafts for view in views]

    def drafts_next(self) -> bool:
        """Always."""
        return True


class Drafting:
    """What is decided about drafts on the host.

    Args:
        drafts: of a round.
        planner: how many of them are verified.
        rule: how drafts are accepted.
        reads_tokens: the drafter wants all tokens of a sequence.
        laws_each: laws that are kept for one sequence; 0: none are.
        learners: told what became of drafts.
    """

    def __init__(
        self,
        drafts: int,
        planner: DraftPlanner,
        *,
        rule: AcceptanceRule = "match",
        reads_tokens: bool = False,
        laws_each: int = 0,
        learners: tuple[Learn, ...] = (),
    ) -> None:
        self.drafts = drafts
        self.rule = rule
        self.reads_tokens = reads_tokens
        self.laws_each = laws_each
        self._drafter_learns = learners
        self._times: list[StepTimes] = []
        """Of steps that the planner was not told yet."""
        self.planner = planner
        self.use(planner)

    def use(self, planner: DraftPlanner) -> None:
        """Let another planner decide from now on; the one before is told of all its steps."""
        self._tell_times()
        self.planner = planner
        self._learners = (planner.learn, *self._drafter_learns)
        self._rest = self._resting = 0
        """So many more steps, of so many sequences, have nothing to do with drafts."""

    def want(self, running: RankedQueue, waiting: Sequence[SequenceView], *, max_rows: int) -> bool:
        """Note in each sequence how many drafts the next step is to verify.

        Args:
            running: sequences.
            waiting: those that may be admitted.
            max_rows: of a step.

        Returns:
            Whether the step has to do with drafts at all. It has not if the planner said so behind
            one of the same sequences, none of which had any; then it is as without a drafter.

        Raises:
            EngineError: the planner gives another number of sequences, or more drafts than there
                are, or less than a row.
        """
        if self._rest and not waiting and len(running) == self._resting:
            self._rest -= 1
            return False
        self._rest = 0
        self._plan(running, waiting, max_rows)
        return True

    def _plan(
        self, running: Iterable[Text], waiting: Sequence[SequenceView], max_rows: int
    ) -> None:
        views: list[DraftView] = []
        decoding: list[Text] = []
        other_rows = sum(view.known_tokens - view.computed_tokens for view in waiting)
        for text in running:
            view = draft_view(text)
            text.drafts.wanted = 0
            if view is None:
                other_rows += max(len(text.tokens) - text.computed, 0)
            else:
                views.append(view)
                decoding.append(text)
        if not views:
            return
        self._tell_times()
        rows = self.planner.rows(views, other_rows=min(other_rows, max_rows - len(views)))
        if len(rows) != len(views):
            raise self._misplanned(rows, views)
        for text, view, count in zip(decoding, views, rows, strict=True):
            if not 1 <= count <= 1 + view.drafts:
                raise self._misplanned(rows, views)
            text.drafts.wanted = count - 1
        if not (any(view.drafts for view in views) or self.planner.drafts_next()):
            self._rest, self._resting = self.planner.rest(), len(views)

    def _tell_times(self) -> None:
        for times in self._times:
            self.planner.took(times)
        self._times = []

    def _misplanned(self, rows: Sequence[int], views: Sequence[DraftView]) -> EngineError:
        return EngineError(
            f"{type(self.planner).__name__} gives {list(rows)} rows to sequences with "
            f"{[view.drafts for view in views]} drafts",
            hint="report this to the authors of the drafter",
        )

    def prefixes(self, admitted: Iterable[Text]) -> tuple[Prefix, ...]:
        """What a drafter that reads tokens will not see fed of sequences that enter."""
        if not self.reads_tokens:
            return ()
        return tuple(
            [
                Prefix(text.drafts.place, tuple(text.tokens[: text.computed]))
                for text in admitted
                if text.computed
            ]
        )

    def ask(
        self, rows: tuple[RowRequest, ...], owners: list[Text]
    ) -> tuple[tuple[DraftRequest, ...], list[Text]]:
        """Who is drafted for behind a step; see ``draft_requests``."""
        return draft_requests(rows, owners, self.drafts if self.planner.drafts_next() else 0)

    def take(self, drafted: Sequence[Text], wanted: Sequence[DraftRequest], given: Drafted) -> None:
        """Take the drafts of a round, behind tokens that are known by now.

        Args:
            drafted: whose they are.
            wanted: what was asked for.
            given: what came.
        """
        for text, asked, drafts in zip(drafted, wanted, given.results, strict=True):
            if text.drafts.place == asked.place:  # it runs still
                text.drafts.take(drafts)

    def learn(self, outcomes: Sequence[DraftOutcome]) -> None:
        """Tell planner and drafter what became of the drafts of one step."""
        if outcomes:
            for learn in self._learners:
                learn(outcomes)

    def took(self, facts: StepFacts, given: Drafted, sequences: int) -> None:
        """Note how long a step of decode rows took; the planner is told when it plans next.

        Args:
            facts: of the step.
            given: what the runner says about drafts.
            sequences: that drew a token in it.
        """
        if facts.kind != "decode":
            return
        rows, drafted = facts.decode_rows, bool(given.results)
        tokens = sequences + facts.more_tokens
        self._times.append(
            StepTimes(sequences, rows, facts.elapsed_s, drafted, given.round_s, tokens)
        )


def draft_view(text: Text) -> DraftView | None:
    """What a planner sees of a running sequence; None if it does not decode."""
    drafts, open_tokens = text.drafts, text.open_tokens
    known = len(text.tokens) + open_tokens
    if known - text.computed != 1 or known >= text.longest:
        return None
    at_hand = len(drafts.ids)
    if open_tokens:
        # Of the round before it is known how many there were that a grammar let pass: where they
        # were few, rows for as many as a round can give would mostly be fed in vain.
        likely = drafts.open_count if drafts.given is None else 2 * at_hand + 1
        at_hand = min(drafts.open_count, likely)
    if not at_hand:
        return _NO_DRAFTS
    # All of them and one token more must fit.
    most = min(at_hand, text.longest - known - 1)
    return DraftView(most, drafts.newest, drafts.before, not open_tokens)


_NO_DRAFTS = DraftView(0)


def draft_requests(
    rows: tuple[RowRequest, ...], owners: list[Text], drafts: int
) -> tuple[tuple[DraftRequest, ...], list[Text]]:
    """Who is drafted for behind a step, and whose request each is; remembers how many drafts come.

    Args:
        rows: that the step samples.
        owners: whose row each of them is.
        drafts: of a round; 0: none is run.
    """
    requests: list[DraftRequest] = []
    drafted: list[Text] = []
    if not drafts:
        for text in owners:
            text.drafts.open_count = 0
        return (), drafted
    for first, (row, text) in enumerate(zip(rows, owners, strict=True)):
        if first != text.drawn_index:
            continue
        # The next step draws a token itself: if that is the last, it has no use for drafts.
        is_wanted = text.longest - len(text.tokens) > 2
        text.drafts.open_count = drafts if is_wanted else 0
        if is_wanted:
            assert text.state_slot is not None
            drafted.append(text)
            requests.append(
                DraftRequest(
                    text.drafts.place,
                    first,
                    _run_length(owners, first),
                    row.position - 1,
                    text.state_slot,
                    text.valid_start,
                    text.settings,
                    text.rules.banned,
                )
            )
    return tuple(requests), drafted


def _run_length(owners: list[Text], first: int) -> int:
    """How many rows from the first one on have the same owner."""
    last = first
    while last + 1 < len(owners) and owners[last + 1] is owners[first]:
        last += 1
    return last + 1 - first
