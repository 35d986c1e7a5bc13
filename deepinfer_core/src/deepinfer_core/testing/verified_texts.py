"""How do texts decode in steps of several rows each, of which some turn out to be wrong?

As with drafts: a sequence feeds its next token and guesses behind it. Right guesses stay, the first
wrong one and all behind it are fed again by the next step. Here the text is known, and who feeds
how many rows of which how many are right is for the caller to say.

Shapes: T rows of a step, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from deepinfer_core.engine.runner import ModelRunner
from deepinfer_core.schedule.plan import SequenceStep, StepPlan

__all__ = ["Fed", "VerifiedTexts"]


class Fed(NamedTuple):
    """What a text feeds in one step.

    Attributes:
        text: number of the text.
        rows: that it feeds, at least 1.
        right: rows that stay, 1 up to ``rows``; the tokens behind them are wrong.
    """

    text: int
    rows: int = 1
    right: int = 1


class VerifiedTexts:
    """Texts side by side over one runner.

    Args:
        runner: over empty caches, with a state slot and ``text_blocks`` blocks for each text.
        texts: their tokens.
        block_tokens: tokens of a block.
        text_blocks: blocks of each text.

    Attributes:
        ends: rows of each text that stay.
    """

    def __init__(
        self,
        runner: ModelRunner,
        texts: Sequence[tuple[int, ...]],
        *,
        block_tokens: int,
        text_blocks: int,
    ) -> None:
        self.runner = runner
        self.ends = [0] * len(texts)
        self._texts = texts
        self._block_tokens = block_tokens
        self._text_blocks = text_blocks

    def feed(self, *fed: Fed) -> torch.Tensor:
        """Run a step: the logits [T, V] of all rows, the wrong ones too."""
        plan = StepPlan(tuple([self._step(one) for one in fed]))
        handle: Any = self.runner.launch(plan, None)
        for end in handle.ends:
            end.wait()
        logits_TV: torch.Tensor = handle.logits_RV
        for one in fed:
            self.ends[one.text] += one.right
        return logits_TV.clone()

    def _step(self, fed: Fed) -> SequenceStep:
        text, start = self._texts[fed.text], self.ends[fed.text]
        right = text[start : start + fed.right]
        wrong = [(token + 1) % self.runner.vocabulary for token in text[start + fed.right :]]
        before = (-1, -1, -1, *text[:start])[-3:]
        first = 1 + fed.text * self._text_blocks
        used = -(-(start + fed.rows) // self._block_tokens)
        return SequenceStep(
            sequence_id=fed.text,
            start=start,
            token_ids=(*right, *wrong)[: fed.rows],
            history=(before[2], before[1], before[0]),
            block_ids=tuple(range(first, first + used)),
            state_slot=1 + fed.text,
            wants_token=True,
            scored_rows=fed.rows - 1,
        )
