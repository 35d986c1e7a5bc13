"""How does one run a whole text through a model, without an engine?

For tests and for scoring: one sequence, fresh caches, logits of all rows.

Shapes: T tokens, V vocabulary, R rows of a step.
"""

from collections.abc import Sequence

import torch

from deepinfer_core.cache.storage import Caches
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.caches import allocate_caches
from deepinfer_core.model.context import Probe
from deepinfer_core.model.step import StepInputs

__all__ = ["fresh_caches", "score_logits", "text_step"]


def text_step(
    token_ids: Sequence[int],
    start: int,
    stop: int,
    caches: Caches,
    *,
    block_ids: Sequence[int] | None = None,
    state_slot: int = 1,
) -> StepInputs:
    """Feed the tokens ``start`` up to ``stop``, exclusive, of one text; all logits are wanted.

    Args:
        token_ids: the text, at least ``stop`` tokens.
        start: first position.
        stop: position behind the last.
        caches: tell the size of a block and where tensors live.
        block_ids: blocks of the text; None takes 1, 2, .. as far as they are needed.
        state_slot: state slot of the text.
    """
    device = caches.blocks_PB.device
    padded = torch.tensor([-1, -1, -1, *token_ids[:stop]], device=device)
    position_T = torch.arange(start, stop, device=device)
    place_T3 = position_T[:, None] + torch.tensor([2, 1, 0], device=device)  # p + 3 - distance
    if block_ids is None:
        block_ids = range(1, 1 - (-stop // caches.layout.block.block_tokens))
    return StepInputs(
        token_T=padded[start + 3 :],
        position_T=position_T,
        sequence_T=torch.zeros_like(position_T),
        previous_T3=padded[place_T3],
        image_T=torch.zeros_like(position_T, dtype=torch.bool),
        image_previous_T3=torch.zeros_like(place_T3, dtype=torch.bool),
        embedding_TD=None,
        block_table_QB=torch.tensor([list(block_ids)], device=device),
        state_slot_Q=torch.tensor([state_slot], device=device),
        starts=(start,),
        row_counts=(stop - start,),
        valid_starts=(0,),
        sample_row_R=torch.arange(stop - start, device=device),
    )


def fresh_caches(model: TextModel, tokens: int, *, block_tokens: int = 128) -> Caches:
    """Allocate caches for one text of so many tokens."""
    return allocate_caches(
        model.config,
        model.parts.numerics,
        model.parts.codec,
        model.parts.device,
        num_blocks=1 + -(-tokens // block_tokens),
        num_slots=2,
        max_backtracking=model.config.verified_rows,
        block_tokens=block_tokens,
    )


def score_logits(
    model: TextModel,
    token_ids: Sequence[int],
    *,
    chunk_tokens: int | None = None,
    probe: Probe | None = None,
) -> torch.Tensor:
    """Run a text through fresh caches.

    Args:
        model: the model.
        token_ids: at least one.
        chunk_tokens: rows a step; None feeds the whole text at once.
        probe: receives intermediate values of every step.

    Returns:
        Logits of all rows [T, V], accumulation dtype.
    """
    caches = fresh_caches(model, len(token_ids))
    size = chunk_tokens or len(token_ids)
    steps = [
        text_step(token_ids, start, min(start + size, len(token_ids)), caches)
        for start in range(0, len(token_ids), size)
    ]
    return torch.cat([model.forward(step, caches, probe=probe) for step in steps])
