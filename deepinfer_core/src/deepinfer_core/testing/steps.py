"""How does a test feed several sequences in one step, or a prompt under bounded replay?

Shapes: R wanted rows, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch

from deepinfer_core.cache.replay import DecoderTruncation
from deepinfer_core.cache.storage import Caches
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.context import Probe
from deepinfer_core.model.evaluate import text_step
from deepinfer_core.model.joined_steps import join_steps
from deepinfer_core.model.step import StepInputs
from deepinfer_core.schedule.plan import SequenceStep

__all__ = ["feed_prompt", "join_steps", "planned_step", "replay_step"]


def planned_step(
    start: int, token_ids: Sequence[int], block_ids: Sequence[int], slot: int, **more: Any
) -> SequenceStep:
    """The part of a sequence in a plan; the token at position p before ``start`` is 100 + p.

    Args:
        start: first position.
        token_ids: from there on.
        block_ids: of the sequence.
        slot: state slot, and number of the sequence.
        more: other fields.
    """
    history = [100 + start - back if start >= back else -1 for back in (1, 2, 3)]
    return SequenceStep(
        sequence_id=slot,
        start=start,
        token_ids=tuple(token_ids),
        history=(history[0], history[1], history[2]),
        block_ids=tuple(block_ids),
        state_slot=slot,
        wants_token=True,
        **more,
    )


def replay_step(
    token_ids: Sequence[int],
    start: int,
    stop: int,
    caches: Caches,
    *,
    valid_start: int = 0,
    cached_end: int = 0,
    truncation: DecoderTruncation | None = None,
    prompt_tokens: int | None = None,
    state_slot: int = 1,
    block_ids: Sequence[int] | None = None,
) -> StepInputs:
    """A ``text_step`` under bounded replay that wants the rows which the replay keeps.

    Args:
        token_ids: the text.
        start: first position.
        stop: position behind the last.
        caches: as for ``text_step``.
        valid_start: first position with window keys.
        cached_end: position behind the last whose entries are cached.
        truncation: of the decoder half.
        prompt_tokens: what the truncation counts from; None: all of ``token_ids``.
        state_slot: state slot of the text.
        block_ids: blocks of the text.
    """
    step = text_step(token_ids, start, stop, caches, block_ids=block_ids, state_slot=state_slot)
    prompt_tokens = len(token_ids) if prompt_tokens is None else prompt_tokens
    keep_from = 0 if truncation is None else truncation.keep_from(prompt_tokens)
    first_row = max(cached_end - start, keep_from - start, 0)
    return replace(
        step,
        valid_starts=(valid_start,),
        cached_ends=(cached_end,),
        truncation=truncation,
        keep_from=(keep_from,),
        sample_row_R=step.sample_row_R[first_row:],
    )


def feed_prompt(
    model: TextModel,
    token_ids: Sequence[int],
    ends: Sequence[int],
    caches: Caches,
    *,
    start: int = 0,
    cached_end: int = 0,
    truncation: DecoderTruncation | None = None,
    probe: Probe | None = None,
) -> torch.Tensor:
    """Feed a prompt in chunks under bounded replay.

    Args:
        model: the model.
        token_ids: the whole prompt.
        ends: position behind each chunk's last.
        caches: hold the entries of the prompt up to ``cached_end``.
        start: first position to feed.
        cached_end: position behind the last whose entries are cached.
        truncation: of the decoder half.
        probe: receives intermediate values of every chunk.

    Returns:
        Logits [R, V] of the rows that the replay keeps.
    """
    logits = [
        model.forward(
            replay_step(
                token_ids,
                begin,
                end,
                caches,
                valid_start=start,
                cached_end=cached_end,
                truncation=truncation,
            ),
            caches,
            probe=probe,
        )
        for begin, end in pairwise([start, *ends])
    ]
    return torch.cat(logits)
