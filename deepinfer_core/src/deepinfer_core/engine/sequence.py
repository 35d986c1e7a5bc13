"""What does the engine remember about one request while it runs?

The request is frozen; the sequence is the one place that changes. Only ``Batch`` moves blocks and
slots, only the step loop appends tokens.

While a step is under way its rows count as computed although nobody has seen its results. A token
that it draws is *open*: it has a position, and the next step can feed it, but its id is known to
the device only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from deepinfer_core.cache.keys import KeyChain
from deepinfer_core.engine.fork import Fork
from deepinfer_core.engine.outputs import TokenLogprob
from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.rows import RowSettings
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.text import TextStream
from deepinfer_core.schedule.plan import UNKNOWN_TOKEN, SequenceStep
from deepinfer_core.schedule.snapshot import SequenceView

__all__ = ["Request", "Sequence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request that passed every check.

    Attributes:
        index: place among the prompts of the call.
        prompt_ids: at least one token.
        params: how to draw.
        seed: unsigned 64 bits, of this sample; drawn for it where ``params`` has none.
        max_tokens: most tokens to draw, the engine's longest sequence taken into account.
        arrival_s: monotonic clock.
        sample: place among the answers to the prompt.
        bad_sequences: token ids that are not drawn one after the other.
        options: how it is treated beside others.
    """

    index: int
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    seed: int
    max_tokens: int
    arrival_s: float
    sample: int = 0
    bad_sequences: tuple[tuple[int, ...], ...] = ()
    options: RequestOptions = field(default_factory=RequestOptions)

    def settings(self) -> RowSettings:
        """What holds for each of its drawn rows."""
        params = self.params
        return RowSettings(
            seed=self.seed,
            temperature=float(params.temperature),
            top_p=float(params.top_p),
            top_k=int(params.top_k),
            min_p=float(params.min_p),
            allowed=params.allowed_ids,
            bias=params.biases,
            repetition_penalty=float(params.repetition_penalty),
            frequency_penalty=float(params.frequency_penalty),
            presence_penalty=float(params.presence_penalty),
            alternatives=params.alternatives or 0,
        )


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
        keep_from: first position that a truncated decoder half keeps; the same for life, so that
            recomputing a sequence changes nothing.
        chain: keys of its blocks; None if it shares nothing.
        leader: the first sample of the same prompt, until this one was admitted.
        followers: other samples of its prompt that were not admitted yet.
        fork_due: its prompt is still to be computed for its followers.
        fork: its computed prompt.

        open_tokens: tokens that are drawn by the step under way, 0 or 1.
        drawn_index: place of the open token among that step's sampled rows; -1: none.
        computed: rows that were launched.
        committed: rows whose step is known to have succeeded.
        admissions: how often it entered; tells results of an earlier stay from present ones.
        is_gone: it ended; what is still under way is not wanted.

        block_ids: blocks it holds.
        published: leading blocks that are in the prefix cache, or came from it.
        state_slot: slot it holds; None while it waits.
        cached_end: position behind the entries that it took over.
        valid_start: first position whose window keys exist.
        is_exact: no bit of it comes from a bounded replay.
        stops: positions, ascending, at which a chunk must end.
        clone_source: block whose content its next new block takes over.

        cached_tokens, replayed_tokens: as in ``Usage``, of its first admission; None before.
        logprobs: one for each output token, if asked for.
        prompt_logprobs: by position of the prompt token, if asked for.
        first_scheduled_s: monotonic clock of its first admission, like all its times.
        prefilled_s: when the step with the last row of its prompt was known to have succeeded.
        first_token_s: when its first token came.
        last_token_s: when the step that drew its newest token ended.
        preemptions: how often it lost what it held.
    """

    sequence_id: int
    request: Request
    rank: tuple[float, int]
    tokens: list[int]
    text: TextStream
    settings: RowSettings
    keep_from: int = 0
    chain: KeyChain | None = None
    leader: Sequence | None = None
    followers: int = 0
    fork_due: bool = False
    fork: Fork | None = None

    open_tokens: int = 0
    drawn_index: int = -1
    computed: int = 0
    committed: int = 0
    admissions: int = 0
    is_gone: bool = False

    block_ids: list[int] = field(default_factory=list)
    published: int = 0
    state_slot: int | None = None
    cached_end: int = 0
    valid_start: int = 0
    is_exact: bool = True
    stops: list[int] = field(default_factory=list)
    clone_source: int | None = None

    cached_tokens: int | None = None
    replayed_tokens: int = 0
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: dict[int, TokenLogprob] = field(default_factory=dict)
    first_scheduled_s: float | None = None
    prefilled_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    preemptions: int = 0

    @property
    def output_ids(self) -> tuple[int, ...]:
        """Tokens drawn so far, without an open one."""
        return tuple(self.tokens[len(self.request.prompt_ids) :])

    @property
    def output_count(self) -> int:
        """Number of tokens drawn so far, without an open one."""
        return len(self.tokens) - len(self.request.prompt_ids)

    @property
    def is_ready(self) -> bool:
        """Whether it need not wait for the first sample of its prompt."""
        leader = self.leader
        return leader is None or leader.is_gone or not leader.fork_due

    def view(self, idle_blocks: int = 0) -> SequenceView:
        """What the policy sees of a running sequence; one that is exhausted has nothing to feed."""
        known = len(self.tokens) + self.open_tokens
        is_exhausted = known >= len(self.request.prompt_ids) + self.request.max_tokens
        return SequenceView(
            self.sequence_id,
            self.computed if is_exhausted else known,
            self.computed,
            len(self.block_ids),
            idle_blocks,
            self.stops[0] if self.stops else None,
            True,
            self.rank,
        )

    def step(self, row_count: int) -> SequenceStep:
        """The plan's entry for the next ``row_count`` rows, which count as computed from now on.

        Blocks and slot are already taken.
        """
        assert self.state_slot is not None
        tokens, start = self.tokens, self.computed
        self.computed = end = start + row_count
        fed = tokens[start:end]
        drawn_index = -1
        if end > len(tokens):
            fed.append(UNKNOWN_TOKEN)
            drawn_index = self.drawn_index
        wants_token = end == len(tokens) + self.open_tokens
        if start >= 3:
            history = (tokens[start - 1], tokens[start - 2], tokens[start - 3])
        else:
            history = self._short_history(start)
        return SequenceStep(
            self.sequence_id,
            start,
            tuple(fed),
            history,
            tuple(self.block_ids),
            self.state_slot,
            wants_token,
            self._scored_rows(start, end),
            drawn_index,
            self.cached_end,
            self.valid_start,
            self.keep_from,
        )

    def _short_history(self, start: int) -> tuple[int, int, int]:
        first, second, third = (self.tokens[start - i] if start >= i else -1 for i in (1, 2, 3))
        return first, second, third

    def _scored_rows(self, start: int, end: int) -> int:
        """Rows that score the next token of the prompt; 0 if all their scores are there."""
        if self.request.params.prompt_alternatives is None:
            return 0
        behind = range(start + 1, min(end + 1, len(self.request.prompt_ids)))
        missing = any(position not in self.prompt_logprobs for position in behind)
        return len(behind) if missing else 0
