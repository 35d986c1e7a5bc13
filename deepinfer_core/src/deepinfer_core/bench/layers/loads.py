"""Which steps does a load consist of?

Texts take blocks of a common pool in turn. Where all texts together are longer than the pool, they
share blocks: what is read is as much, and as far apart, as without.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from deepinfer_core.bench.layers.work import Load
from deepinfer_core.engine.rows import RowRequest, RowSettings
from deepinfer_core.schedule.plan import UNKNOWN_TOKEN, SequenceStep, StepPlan

__all__ = ["Decoding", "Pool", "Prompt"]

_DRAWN = RowSettings(seed=1, temperature=1.0, top_p=0.95)
"""As chats are drawn from; the sampler has to look at all of the distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Where texts lie.

    Attributes:
        blocks: usable blocks, numbered from 1.
        block_tokens: tokens of each.
        vocabulary: tokens are drawn from it, in the order of a fixed seed.
    """

    blocks: int
    block_tokens: int
    vocabulary: int

    def text_blocks(self, number: int, tokens: int) -> tuple[int, ...]:
        """Blocks of text ``number`` of a load whose texts have ``tokens`` tokens."""
        count = -(-tokens // self.block_tokens)
        first = number * count
        return tuple([1 + (first + place) % self.blocks for place in range(count)])

    def tokens(self, seed: int, count: int) -> tuple[int, ...]:
        """Random tokens."""
        return tuple(random.Random(seed).choices(range(self.vocabulary), k=count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt that is fed in chunks, and the token behind it.

    Attributes:
        tokens: of the prompt.
        chunk: rows of a step.
    """

    tokens: int
    chunk: int

    def __str__(self) -> str:
        """As figures name it."""
        return f"tokens={self.tokens},chunk={min(self.chunk, self.tokens)}"

    def plans(self, pool: Pool) -> list[StepPlan]:
        """The steps, on the first blocks and state slot 1."""
        tokens = pool.tokens(self.tokens, self.tokens)
        blocks = pool.text_blocks(0, self.tokens)
        plans = []
        for start in range(0, self.tokens, self.chunk):
            end = min(start + self.chunk, self.tokens)
            before = [-1, -1, -1, *tokens[max(start - 3, 0) : start]][-3:]
            step = SequenceStep(
                sequence_id=1,
                start=start,
                token_ids=tokens[start:end],
                history=(before[2], before[1], before[0]),
                block_ids=blocks[: -(-end // pool.block_tokens)],
                state_slot=1,
                wants_token=end == self.tokens,
            )
            plans.append(StepPlan((step,)))
        return plans

    def loads(self, experts: float) -> list[Load]:
        """The same for the bound."""
        chunks = [
            (start, min(start + self.chunk, self.tokens))
            for start in range(0, self.tokens, self.chunk)
        ]
        return [
            Load(
                sequences=1,
                rows=end - start,
                start=start,
                drawn=int(end == self.tokens),
                experts=experts,
            )
            for start, end in chunks
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Equal texts that go on together.

    Attributes:
        sequences: texts.
        context: tokens of each behind the last step.
        rows: that each of them feeds in a step: 1, or as many as are verified at once.
        steps: how many are run.
    """

    sequences: int
    context: int
    rows: int
    steps: int

    def __str__(self) -> str:
        """As figures name it."""
        return f"sequences={self.sequences},context={self.context},rows={self.rows}"

    def start(self, number: int) -> int:
        """Position of the first row of step ``number``."""
        return max(self.context - (self.steps - number) * self.rows, 0)

    def plan(self, pool: Pool, number: int, *, is_first: bool) -> StepPlan:
        """Step ``number``; a single row feeds what the step before drew.

        Args:
            pool: where the texts lie.
            number: of the step.
            is_first: no step before it drew tokens.
        """
        start = self.start(number)
        used = -(-(start + self.rows) // pool.block_tokens)
        width = 3 + self.rows
        tokens = pool.tokens(number, self.sequences * width)
        takes_drawn = self.rows == 1 and not is_first
        steps = []
        for text in range(self.sequences):
            one, two, three, *own = tokens[text * width : (text + 1) * width]
            ids = (UNKNOWN_TOKEN,) if takes_drawn else tuple(own)
            steps.append(
                SequenceStep(
                    sequence_id=text + 1,
                    start=start,
                    token_ids=ids,
                    history=(one, two, three),
                    block_ids=pool.text_blocks(text, self.context)[:used],
                    state_slot=text + 1,
                    wants_token=True,
                    scored_rows=self.rows - 1,
                    drawn_index=text if takes_drawn else -1,
                )
            )
        return StepPlan(tuple(steps))

    def drawn(self, number: int) -> tuple[RowRequest, ...]:
        """What is drawn in a step: every row."""
        start = self.start(number)
        places = range(self.sequences * self.rows)
        return tuple([RowRequest(row, start + row % self.rows + 1, _DRAWN) for row in places])

    def load(self, experts: float) -> Load:
        """The same for the bound: the last step."""
        return Load(
            sequences=self.sequences,
            rows=self.rows,
            start=self.start(self.steps - 1),
            drawn=self.rows,
            experts=experts,
        )
