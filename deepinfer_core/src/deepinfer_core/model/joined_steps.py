"""How do steps of single texts become one step of several sequences?

Where no engine plans steps: in proofs at load, and in tests.
"""

from collections.abc import Sequence
from itertools import accumulate, chain

import torch

from deepinfer_core.model.step import StepInputs

__all__ = ["join_steps"]


def join_steps(steps: Sequence[StepInputs]) -> StepInputs:
    """Put text steps of different sequences behind one another in one step.

    Args:
        steps: at least one, none with image rows, with at most one truncation among them; wanted
            rows stay in order.
    """
    first_rows = [0, *accumulate(step.token_T.shape[0] for step in steps)]
    first_sequences = [0, *accumulate(len(step.starts) for step in steps)]
    blocks = max(step.block_table_QB.shape[1] for step in steps)

    def joined(name: str) -> torch.Tensor:
        return torch.cat([getattr(step, name) for step in steps])

    def chained(name: str) -> tuple[int, ...]:
        return tuple(chain.from_iterable(getattr(step, name) for step in steps))

    def shifted(name: str, by: list[int]) -> torch.Tensor:
        return torch.cat([getattr(step, name) + by[i] for i, step in enumerate(steps)])

    tables = [
        torch.nn.functional.pad(
            step.block_table_QB, (0, blocks - step.block_table_QB.shape[1]), value=-1
        )
        for step in steps
    ]
    return StepInputs(
        token_T=joined("token_T"),
        position_T=joined("position_T"),
        sequence_T=shifted("sequence_T", first_sequences),
        previous_T3=joined("previous_T3"),
        image_T=joined("image_T"),
        image_previous_T3=joined("image_previous_T3"),
        embedding_TD=None,
        block_table_QB=torch.cat(tables),
        state_slot_Q=joined("state_slot_Q"),
        starts=chained("starts"),
        row_counts=chained("row_counts"),
        valid_starts=chained("valid_starts"),
        sample_row_R=shifted("sample_row_R", first_rows),
        cached_ends=chained("cached_ends"),
        truncation=next((step.truncation for step in steps if step.truncation), None),
        keep_from=chained("keep_from"),
    )
