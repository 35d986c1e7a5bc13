"""Which runner runs the engine without a model?

``FakeRunner`` keeps tokens where a model would keep keys, so that a wrong block table, a leaked or
shared block, a lost row or a wrong state slot shows at once.
"""

from __future__ import annotations

from collections.abc import Callable

from deepinfer_core.engine.rows import (
    Drafted,
    DraftRequest,
    DraftResult,
    RowRequest,
    RowResult,
    Runner,
    StepHandle,
)
from deepinfer_core.interfaces.device import Event, InlineStream, Stream
from deepinfer_core.schedule.plan import Copy, SequenceStep, StepPlan
from deepinfer_core.testing.fake_draws import MOST_FAKE_DRAFTS, Guesses, fake_token

__all__ = ["FakeRunner"]


class _FakeStep(StepHandle):
    """Histories of the wanted rows, then what was drawn from them."""

    def __init__(self) -> None:
        self.ends: list[Event] = []
        self.histories: list[tuple[int, ...]] | None = None
        self.results: tuple[RowResult, ...] = ()
        self.drafts: tuple[DraftResult, ...] = ()
        self.shared: tuple[int, ...] | None = None


class FakeRunner(Runner):
    """Draws a function of seed, position and the history that its blocks hold.

    A state slot holds the whole history of its sequence, so that a state restored too early, too
    late or from elsewhere raises. With drafts it may be ahead by as many tokens as were rejected.
    Rows that may be shared out go to the last sequences that can feed them.

    Args:
        vocabulary: number of token ids.
        block_tokens: tokens in one block.
        before_step: called with the plan of each step, to raise in a test.
        stream: where the steps run; None runs each at once.
        guesses: gives drafts from seed and history; None: there are none.

    Attributes:
        plans: every plan that was executed, with its open tokens filled in.
    """

    def __init__(
        self,
        vocabulary: int = 1000,
        block_tokens: int = 128,
        before_step: Callable[[StepPlan], None] = lambda plan: None,
        stream: Stream | None = None,
        guesses: Guesses | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self.block_tokens = block_tokens
        self.before_step = before_step
        self.guesses = guesses
        self.plans: list[StepPlan] = []
        self._drafts: dict[int, tuple[int, ...]] = {}
        self._stream = stream or InlineStream()
        self._blocks: dict[int, dict[int, int]] = {}
        self._slots: dict[int, tuple[int, ...] | None] = {}
        self._broken: set[int] = set()

    def launch(self, plan: StepPlan, before: StepHandle | None) -> StepHandle:
        """Queue storing the rows; see ``Runner``."""
        assert before is None or isinstance(before, _FakeStep)
        step = _FakeStep()
        if plan.shares is not None:
            step.shared = _to_the_last(plan)
            plan = plan._replace(
                sequences=tuple(map(_with_rows, plan.sequences, step.shared)), shares=None
            )
        step.ends.append(self._stream.submit(lambda: self._forward(step, plan, before)))
        return step

    def sample(
        self,
        step: StepHandle,
        rows: tuple[RowRequest, ...],
        wanted: tuple[DraftRequest, ...] = (),
    ) -> None:
        """Queue drawing from what is stored; see ``Runner``."""
        assert isinstance(step, _FakeStep)
        if rows:
            step.ends.append(self._stream.submit(lambda: self._sample(step, rows, wanted)))

    def shared_rows(self, step: StepHandle) -> tuple[int, ...] | None:
        """Who has which rows; see ``Runner``."""
        assert isinstance(step, _FakeStep)
        return step.shared

    def results(self, step: StepHandle) -> tuple[RowResult, ...]:
        """Wait; see ``Runner``."""
        assert isinstance(step, _FakeStep)
        for end in step.ends:
            end.wait()
        return step.results

    def drafted(self, step: StepHandle) -> Drafted:
        """Drafts; see ``Runner``."""
        assert isinstance(step, _FakeStep)
        return Drafted(step.drafts)

    def drain(self) -> None:
        """Do what is queued."""
        self._stream.drain()

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    def _forward(self, step: _FakeStep, plan: StepPlan, before: _FakeStep | None) -> None:
        try:
            self.before_step(plan)
        except Exception:
            # What such a step leaves of its sequences means nothing to a step launched before.
            self._broken |= {entry.sequence_id for entry in plan.sequences}
            raise
        filled = tuple([self._filled_in(entry, before) for entry in plan.sequences])
        plan = plan._replace(sequences=filled)
        self.plans.append(plan)
        self._check_plan(plan)
        blocks = {copy.source: dict(self._blocks[copy.source]) for copy in plan.block_copies}
        for source, destination in plan.block_copies:
            self._blocks[destination] = dict(blocks[source])
        self._copy_slots(plan.restored_slots)
        histories: list[tuple[int, ...]] = []
        for entry in plan.sequences:
            whole = (0,) * (entry.start + len(entry.token_ids))
            if entry.sequence_id not in self._broken:
                self._store(entry)
                whole = self._history(entry)
            ends = [entry.start + 1 + row for row in range(entry.scored_rows)]
            ends += [len(whole)] if entry.wants_token else []
            histories += [whole[:end] for end in ends]
        self._copy_slots(plan.saved_slots)
        step.histories = histories

    def _sample(
        self, step: _FakeStep, rows: tuple[RowRequest, ...], wanted: tuple[DraftRequest, ...]
    ) -> None:
        if step.histories is None:
            return
        histories = [step.histories[row.row] for row in rows]
        step.results = self.draw(rows, histories)
        step.drafts = tuple([self._draft(step, histories, one) for one in wanted])

    def _draft(
        self, step: _FakeStep, histories: list[tuple[int, ...]], wanted: DraftRequest
    ) -> DraftResult:
        assert self.guesses is not None
        kept = _kept(step, wanted.first, wanted.rows)
        last = wanted.first + kept
        if len(histories[last]) != wanted.start + 1 + kept:
            raise ValueError(f"{wanted} does not begin at {len(histories[wanted.first]) - 1}")
        history = (*histories[last], step.results[last].token_id)
        drafts = self.guesses(wanted.settings.seed, history)
        self._drafts[wanted.place] = drafts
        return DraftResult(drafts)

    def draw(
        self, rows: tuple[RowRequest, ...], histories: list[tuple[int, ...]]
    ) -> tuple[RowResult, ...]:
        """Draw for each row; for tests to watch or to replace.

        Args:
            rows: what is asked for, at least one row.
            histories: all tokens before each drawn one.
        """
        return tuple(map(self._drawn, rows, histories))

    def _copy_slots(self, copies: tuple[Copy, ...]) -> None:
        held = [self._slots.get(copy.source) for copy in copies]
        for copy, state in zip(copies, held, strict=True):
            self._slots[copy.destination] = state

    def _check_plan(self, plan: StepPlan) -> None:
        slots = [step.state_slot for step in plan.sequences]
        blocks = [block for step in plan.sequences for block in step.block_ids]
        if len(set(slots)) < len(slots) or 0 in blocks + slots:
            raise ValueError("two sequences share a slot, or one holds the dummy")

    def _store(self, step: SequenceStep) -> None:
        cached = {position: self._token_at(step, position) for position in range(step.cached_end)}
        for position, token in enumerate(step.token_ids, step.start):
            if position < step.cached_end:
                if cached[position] != token:
                    raise ValueError(
                        f"{token} is fed again at {position}, {cached[position]} cached"
                    )
                continue
            block = step.block_ids[position // self.block_tokens]
            self._blocks.setdefault(block, {})[position % self.block_tokens] = token
        whole = self._history(step)
        state = self._slots.get(step.state_slot)
        # Behind a replay the state is made of what is fed again.
        if step.start > step.valid_start and not self._is_state(state, whole[: step.start]):
            raise ValueError(f"slot {step.state_slot} holds {state}, not the state of {step}")
        self._slots[step.state_slot] = whole

    def _is_state(self, state: tuple[int, ...] | None, history: tuple[int, ...]) -> bool:
        """Whether a state is the one behind a history, or ahead by no more than can be rejected."""
        most_ahead = MOST_FAKE_DRAFTS if self.guesses else 0
        if state is None or not 0 <= len(state) - len(history) <= most_ahead:
            return False
        return state[: len(history)] == history

    def _token_at(self, step: SequenceStep, position: int) -> int:
        block, offset = divmod(position, self.block_tokens)
        return self._blocks[step.block_ids[block]][offset]

    def _history(self, step: SequenceStep) -> tuple[int, ...]:
        end = step.start + len(step.token_ids)
        found = tuple(self._token_at(step, position) for position in range(end))
        before = tuple(found[step.start - i] if step.start >= i else -1 for i in (1, 2, 3))
        if before != step.history:
            raise ValueError(f"the blocks hold {before} before the rows, the plan {step.history}")
        return found

    def _drawn(self, row: RowRequest, history: tuple[int, ...]) -> RowResult:
        if row.position != len(history):
            raise ValueError(f"row {row.row} ends {len(history)} tokens, not {row.position}")
        token = fake_token(row.settings.seed, row.position, history, self.vocabulary)
        if not row.allows_any(self.vocabulary):
            return RowResult(0, 0.0, 0.0, invalid=True)
        allowed = row.settings.allowed
        while token in row.banned or (allowed is not None and token not in allowed):
            token = (token + 1) % self.vocabulary
        if row.forced is not None:
            token = row.forced
        logprob = -1.0 - token / self.vocabulary
        top = tuple((i, -0.1 * (i + 1)) for i in range(row.settings.alternatives))
        return RowResult(token, logprob, logprob, top, accepted=token == row.draft)

    def _filled_in(self, step: SequenceStep, before: _FakeStep | None) -> SequenceStep:
        """With the tokens that the step before drew, where they belong; any, if that one failed."""
        if step.drawn_index < 0:
            return step
        assert before is not None
        if not before.results:
            return step._replace(token_ids=tuple(max(token, 0) for token in step.token_ids))
        kept = _kept(before, step.drawn_index, step.open_rows + 1)
        start = step.start - step.open_rows + kept
        drafts = step.scored_rows if step.token_ids[0] < 0 else 0
        opened = [before.results[step.drawn_index + kept].token_id]
        if drafts:
            opened += [*self._drafts[step.place], *[0] * drafts][:drafts]
        token_ids = (*step.token_ids[: len(step.token_ids) - len(opened)], *opened)
        history = step.history
        if step.open_rows:
            found = [self._token_at(step, position) for position in range(start)]
            first, second, third = (found[-i] if start >= i else -1 for i in (1, 2, 3))
            history = (first, second, third)
        return step._replace(start=start, token_ids=token_ids, history=history)


def _to_the_last(plan: StepPlan) -> tuple[int, ...]:
    """The rows of a plan, as many as can be to the last sequences."""
    left, found = plan.rows - len(plan.sequences), list[int]()
    for step in reversed(plan.sequences):
        more = min(left, step.most_rows - 1)
        left -= more
        found.append(1 + more)
    return tuple(found[::-1])


def _with_rows(step: SequenceStep, rows: int) -> SequenceStep:
    return step._replace(token_ids=step.token_ids[:1] * rows, scored_rows=rows - 1)


def _kept(step: _FakeStep, first: int, rows: int) -> int:
    """How many drafts of a sequence a step kept, whose rows are these."""
    kept = 0
    while kept < rows - 1 and step.results[first + kept].accepted:
        kept += 1
    return kept
