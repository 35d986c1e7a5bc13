"""Do the logits of a text have the same bits alone and whole as in chunks beside other texts?

The last question of a proof: operators that each keep their promise might still be put together in
a way that does not.

Shapes: T rows, V vocabulary.
"""

from __future__ import annotations

import torch

from deepinfer_core.engine.proof.samples import SEQUENCES, Samples
from deepinfer_core.model.evaluate import text_step
from deepinfer_core.model.joined_steps import join_steps
from deepinfer_core.model.step import StepInputs

__all__ = ["TEXT_TOKENS", "chunk_breach", "rerun_breach"]

TEXT_TOKENS = 24
"""Long enough for chunks that go through prefill and for ones that go through decode."""

_ENDS = (1, 10, 11, 16, TEXT_TOKENS)
"""Where chunks end: one row, then nine, one, five and eight."""

_OTHERS = ((9, 1), (0, 0), (12, 5), (1, 0), (3, 10))
"""Rows of two other texts in the steps of those chunks."""

_FED_TOKENS = 32
"""Tokens of each text; at least what is fed of it."""


def chunk_breach(samples: Samples) -> str:
    """Feed a text whole and alone, then in chunks that stand behind, between and before others.

    Steps have up to ``TEXT_TOKENS`` rows even if those of the engine are smaller.

    Returns:
        What was found, or an empty text.
    """
    vocabulary, caches = samples.model.config.text_config.vocab_size, samples.caches
    own, *others = samples.integers(0, vocabulary, SEQUENCES, _FED_TOKENS).tolist()
    whole = text_step(own, 0, TEXT_TOKENS, caches, block_ids=[1])
    want_TV = samples.model.forward(whole, caches)
    start, fed = 0, [0] * len(others)
    for number, (end, counts) in enumerate(zip(_ENDS, _OTHERS, strict=True)):
        steps: list[StepInputs] = []
        for slot, text, count in zip((2, 3), others, counts, strict=True):
            begin, fed[slot - 2] = fed[slot - 2], fed[slot - 2] + count
            if count:
                stop, block = begin + count, [slot]
                steps.append(text_step(text, begin, stop, caches, block_ids=block, state_slot=slot))
        place = number % (len(steps) + 1)
        first_row = sum(step.token_T.shape[0] for step in steps[:place])
        steps.insert(place, text_step(own, start, end, caches, block_ids=[1]))
        logits_TV = samples.model.forward(join_steps(steps), caches)
        if not _same(logits_TV[first_row : first_row + end - start], want_TV[start:end]):
            return (
                f"the logits of positions {start} to {end - 1} of a text of {TEXT_TOKENS} tokens "
                f"have other bits as a chunk among {len(steps)} sequences than whole and alone"
            )
        start = end
    return ""


def rerun_breach(samples: Samples) -> str:
    """Feed a text twice; see ``chunk_breach``."""
    vocabulary, caches = samples.model.config.text_config.vocab_size, samples.caches
    [text] = samples.integers(0, vocabulary, 1, TEXT_TOKENS).tolist()
    step = text_step(text, 0, TEXT_TOKENS, caches, block_ids=[1])
    first_TV, second_TV = (samples.model.forward(step, caches) for _ in range(2))
    return "" if _same(first_TV, second_TV) else "the same text has other logits the second time"


def _same(got_TV: torch.Tensor, want_TV: torch.Tensor) -> bool:
    return torch.equal(
        got_TV.contiguous().view(torch.uint8), want_TV.contiguous().view(torch.uint8)
    )
