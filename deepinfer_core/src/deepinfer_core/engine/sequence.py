"""What does the engine remember about one request while it runs?

The request is frozen; the sequence is the one place that changes. Only ``Batch`` moves blocks and
slots, only the step loop appends tokens.

While a step is under way its rows count as computed although nobody has seen its results. A token
that it draws is *open*: it has a position, and the next step can feed it, but its id is known to
the device only. Where the step verifies drafts, all of them count as kept until it is known which
are, and as many tokens are open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from deepinfer_core.cache.keys import KeyChain
from deepinfer_core.engine.drafts.state import DraftState
from deepinfer_core.engine.fork import Fork
from deepinfer_core.engine.grammar_constraint import Constraint
from deepinfer_core.engine.outputs import TokenLogprob
from deepinfer_core.engine.request import Request
from deepinfer_core.engine.rows import RowSettings
from deepinfer_core.engine.stored.fetch import Fetch, Taken
from deepinfer_core.engine.text import TextStream
from deepinfer_core.schedule.plan import UNKNOWN_TOKEN, SequenceStep
from deepinfer_core.schedule.snapshot import SequenceView

__all__ = ["Sequence", "TokenRules"]

_ONE_OPEN_TOKEN: tuple[int, ...] = (UNKNOWN_TOKEN,)
_NO_HISTORY = (UNKNOWN_TOKEN, UNKNOWN_TOKEN, UNKNOWN_TOKEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What holds for each token of a request, worked out once for all of its steps.

    Attributes:
        end_ids: tokens that end it.
        shown_end_ids: those of them that stand in the text.
        banned: tokens that are never drawn, ascending.
        plain_from: tokens drawn before nothing but ``banned`` decides what may be drawn; None: that
            never is so.
        searched_from: tokens drawn before stop strings are looked for.
        pieces: bytes of each token in the text.
    """

    end_ids: frozenset[int] = frozenset()
    shown_end_ids: frozenset[int] = frozenset()
    banned: tuple[int, ...] = ()
    plain_from: int | None = None
    searched_from: int = 0
    pieces: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """A request in work.

    Attributes:
        sequence_id: the engine's number; grows with arrival.
        request: what was asked.
        rank: place among all sequences, the lowest first.
        tokens: prompt and output.
        text: the output as text.
        settings: of its drawn rows.
        rules: of its tokens.
        keep_from: first position that a truncated decoder half keeps; the same for life, so that
            recomputing a sequence changes nothing.
        chain: keys of its blocks; None if it shares nothing.
        constraint: what its output must look like; None: anything.
        leader: the first sample of the same prompt, until this one was admitted.
        followers: other samples of its prompt that were not admitted yet.
        fork_due: its prompt is still to be computed for its followers.
        fork: its computed prompt.
        fetch: what comes from a store before it is admitted; None: the store was not asked.

        open_tokens: tokens that are drawn by the step under way, at most: 0, or 1 and its drafts.
        drawn_index: place of the first of its rows among that step's sampled ones; -1: none.
        computed: rows that were launched, at most.
        committed: rows whose step is known to have succeeded.
        admissions: how often it entered; tells results of an earlier stay from present ones.
        is_gone: it ended; what is still under way is not wanted.

        block_ids: blocks it holds.
        published: leading blocks that are in the prefix cache, or came from it.
        offered: leading blocks that need not be offered to a store.
        state_slot: slot it holds; None while it waits.
        cached_end: position behind the entries that it took over.
        valid_start: first position whose window keys exist.
        is_exact: no bit of it comes from a bounded replay.
        stops: positions, ascending, at which a chunk must end.
        clone_source: block whose content its next new block takes over.

        drafts: of the tokens behind its last one.

        cached_tokens, replayed_tokens, stored_tokens, peer_tokens, has_peer_state: as in
            ``Usage``, of its first admission; None before.
        drafted_tokens, accepted_tokens: as in ``Usage``.
        logprobs: one for each output token, if asked for.
        prompt_logprobs: by position of the prompt token, if asked for.
        first_scheduled_s: monotonic clock of its first admission, like all its times.
        prefilled_s: when the step with the last row of its prompt was known to have succeeded.
        first_token_s: when its first token came.
        last_token_s: when the step that drew its newest token ended.
        preemptions: how often it lost what it held.

        prompt_tokens: tokens of the prompt.
        longest: tokens of prompt and output at which it ends.
        wants_logprobs: those of output tokens are asked for.
        is_scored: those of prompt tokens are.
    """

    sequence_id: int
    request: Request
    rank: tuple[float, int]
    tokens: list[int]
    text: TextStream
    settings: RowSettings
    rules: TokenRules = TokenRules()
    keep_from: int = 0
    chain: KeyChain | None = None
    constraint: Constraint | None = None
    leader: Sequence | None = None
    followers: int = 0
    fork_due: bool = False
    fork: Fork | None = None
    fetch: Fetch | None = None

    open_tokens: int = 0
    drawn_index: int = -1
    computed: int = 0
    committed: int = 0
    admissions: int = 0
    is_gone: bool = False

    block_ids: tuple[int, ...] = ()
    published: int = 0
    offered: int = 0
    state_slot: int | None = None
    cached_end: int = 0
    valid_start: int = 0
    is_exact: bool = True
    stops: list[int] = field(default_factory=list)
    clone_source: int | None = None

    drafts: DraftState = field(default_factory=DraftState)

    cached_tokens: int | None = None
    replayed_tokens: int = 0
    stored_tokens: int = 0
    peer_tokens: int = 0
    has_peer_state: bool = False
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: dict[int, TokenLogprob] = field(default_factory=dict)
    first_scheduled_s: float | None = None
    prefilled_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    preemptions: int = 0

    prompt_tokens: int = field(init=False)
    longest: int = field(init=False)
    wants_logprobs: bool = field(init=False)
    is_scored: bool = field(init=False)

    def __post_init__(self) -> None:
        """Work out once what every step looks at."""
        request, params = self.request, self.request.params
        self.prompt_tokens = len(request.prompt_ids)
        self.longest = self.prompt_tokens + request.max_tokens
        self.wants_logprobs = params.alternatives is not None
        self.is_scored = params.prompt_alternatives is not None

    def note_taken(self, taken: Taken, block_tokens: int) -> None:
        """What of the cached tokens came from a store for it, at its first admission."""
        self.stored_tokens = taken.stored * block_tokens
        self.peer_tokens = taken.peers * block_tokens
        resumes_at_end = bool(self.cached_tokens) and not self.replayed_tokens
        if resumes_at_end and taken.remote_state is not None:
            self.has_peer_state = (taken.remote_state + 1) * block_tokens == self.cached_tokens

    @property
    def output_ids(self) -> tuple[int, ...]:
        """Tokens drawn so far, without an open one."""
        return tuple(self.tokens[self.prompt_tokens :])

    @property
    def output_count(self) -> int:
        """Number of tokens drawn so far, without an open one."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def is_ready(self) -> bool:
        """Whether it need not wait: for a store, its grammar, the first sample of its prompt."""
        leader = self.leader
        if self.fetch is not None and self.fetch.is_open:
            return False
        if self.constraint is not None and not self.constraint.is_settled:
            return False
        return leader is None or leader.is_gone or not leader.fork_due

    def view(self, idle_blocks: int = 0) -> SequenceView:
        """What the policy sees of a running sequence; one that is exhausted has nothing to feed."""
        open_tokens, computed, stops = self.open_tokens, self.computed, self.stops
        known = len(self.tokens) + open_tokens
        return SequenceView(
            self.sequence_id,
            # It is not exhausted as long as drafts may be rejected.
            known if known < self.longest or open_tokens > 1 else computed,
            computed,
            len(self.block_ids),
            idle_blocks,
            stops[0] if stops else None,
            True,
            self.rank,
            self.drafts.wanted,
        )

    def step(self, row_count: int) -> SequenceStep:
        """The plan's entry for the next rows, which count as computed from now on.

        Blocks and slot are already taken. Rows beyond the known tokens are drafts.
        """
        assert self.state_slot is not None
        tokens, start, open_tokens = self.tokens, self.computed, self.open_tokens
        count, known = len(tokens), len(tokens) + open_tokens
        self.computed = end = start + row_count
        drawn_index, scored, open_rows = self.drawn_index, 0, 0
        fed: tuple[int, ...]
        if end <= count:
            fed, drawn_index = tuple(tokens[start:end]), -1
        elif not open_tokens:
            fed, drawn_index = (*tokens[start:], *self.drafts.ids[: end - count]), -1
        elif start < count:
            fed = (*tokens[start:end], UNKNOWN_TOKEN)
        else:
            fed, open_rows = _ONE_OPEN_TOKEN * row_count, open_tokens - 1
        if open_rows:
            history = _NO_HISTORY
        elif start >= 3:
            history = (tokens[start - 1], tokens[start - 2], tokens[start - 3])
        else:
            history = self._short_history(start)
        if end > known:
            scored = end - known
        elif self.is_scored:
            scored = self._scored_rows(start, end)
        return SequenceStep(
            self.sequence_id,
            start,
            fed,
            history,
            self.block_ids,
            self.state_slot,
            end >= known,
            scored,
            drawn_index,
            self.cached_end,
            self.valid_start,
            self.keep_from,
            self.drafts.place,
            open_rows,
        )

    def _short_history(self, start: int) -> tuple[int, int, int]:
        first, second, third = (self.tokens[start - i] if start >= i else -1 for i in (1, 2, 3))
        return first, second, third

    def _scored_rows(self, start: int, end: int) -> int:
        """Rows that score the next token of the prompt; 0 if all their scores are there."""
        behind = range(start + 1, min(end + 1, self.prompt_tokens))
        missing = any(position not in self.prompt_logprobs for position in behind)
        return len(behind) if missing else 0
