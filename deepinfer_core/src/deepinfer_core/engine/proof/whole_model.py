"""Do the logits of a text have the same bits alone and whole as in chunks beside other texts?

The last question of a proof: operators that each keep their promise might still be put together in
a way that does not.

Shapes: T rows, V vocabulary.
"""

from __future__ import annotations

import torch

from deepinfer_core.engine.proof.samples import Samples
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


def chunk_breach(samples: Samples) -> str:
    """Feed a text whole and alone, then in chunks that stand behind, between and before others.

    Steps have up to ``TEXT_TOKENS`` rows even if those of the engine are smaller.

    Returns:
        What was found, or an empty text.
    """
    texts = samples.integers(0, samples.model.config.text_config.vocab_size, 3, TEXT_TOKENS + 40)
    own, *others = texts.tolist()
    caches, model = samples.caches, samples.model
    want_TV = model.forward(text_step(own, 0, TEXT_TOKENS, caches, block_ids=[1]), caches)
    start, fed = 0, [0, 0]
    for number, (end, counts) in enumerate(zip(_ENDS, _OTHERS, strict=True)):
        steps: list[tuple[bool, StepInputs]] = []
        for slot, (text, count) in enumerate(zip(others, counts, strict=True), start=2):
            if count:
                begin = fed[slot - 2]
                fed[slot - 2] += count
                place = {"block_ids": [slot], "state_slot": slot}
                steps.append((False, text_step(text, begin, begin + count, caches, **place)))
        mine = text_step(own, start, end, caches, block_ids=[1])
        steps.insert(number % (len(steps) + 1), (True, mine))
        logits_TV = model.forward(join_steps([step for _, step in steps]), caches)
        is_mine = [own for own, step in steps for _ in range(step.token_T.shape[0])]
        got_TV = logits_TV[torch.tensor(is_mine, device=logits_TV.device)]
        if not _same(got_TV, want_TV[start:end]):
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
