"""What does the engine remember about one request while it runs?

The request is frozen; the sequence is the one place that changes. Only ``Batch`` moves blocks and
slots, only the step loop appends tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from deepinfer_core.engine.outputs import TokenLogprob
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.text import TextStream
from deepinfer_core.schedule.plan import SequenceStep
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
    """

    index: int
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    seed: int
    max_tokens: int
    arrival_s: float
    sample: int = 0
    bad_sequences: tuple[tuple[int, ...], ...] = ()


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """A request in work.

    Attributes:
        sequence_id: the engine's number; grows with arrival.
        request: what was asked.
        tokens: prompt and output.
        text: the output as text.
        computed: rows whose cache entries exist.
        block_ids: blocks it holds.
        state_slot: slot it holds; None while it waits.
        logprobs: one for each output token, if asked for.
        prompt_logprobs: by position of the prompt token, if asked for.
        first_token_s: monotonic clock of the first output token.
    """

    sequence_id: int
    request: Request
    tokens: list[int]
    text: TextStream
    computed: int = 0
    block_ids: list[int] = field(default_factory=list)
    state_slot: int | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: dict[int, TokenLogprob] = field(default_factory=dict)
    first_token_s: float | None = None

    @property
    def output_ids(self) -> tuple[int, ...]:
        """Tokens drawn so far."""
        return tuple(self.tokens[len(self.request.prompt_ids) :])

    @property
    def output_count(self) -> int:
        """Number of tokens drawn so far."""
        return len(self.tokens) - len(self.request.prompt_ids)

    def view(self) -> SequenceView:
        """What the policy sees."""
        return SequenceView(
            sequence_id=self.sequence_id,
            known_tokens=len(self.tokens),
            computed_tokens=self.computed,
            block_count=len(self.block_ids),
            idle_blocks=len(self.block_ids),
            rank=(0.0, self.sequence_id),
        )

    def step(self, row_count: int) -> SequenceStep:
        """The plan's entry for the next ``row_count`` rows; blocks and slot are already taken."""
        start, end = self.computed, self.computed + row_count
        before = [self.tokens[start - i] if start >= i else -1 for i in (1, 2, 3)]
        assert self.state_slot is not None
        return SequenceStep(
            sequence_id=self.sequence_id,
            start=start,
            token_ids=tuple(self.tokens[start:end]),
            history=(before[0], before[1], before[2]),
            block_ids=tuple(self.block_ids),
            state_slot=self.state_slot,
            wants_token=end == len(self.tokens),
            wants_scores=self._scores_missing(start, end),
        )

    def _scores_missing(self, start: int, end: int) -> bool:
        """Whether a row scores a prompt token whose score is not there yet."""
        if self.request.params.prompt_alternatives is None:
            return False
        behind = range(start + 1, min(end + 1, len(self.request.prompt_ids)))
        return any(position not in self.prompt_logprobs for position in behind)
