"""What does the model need to know about one step, and what does it give back?

The model never sees a request: only rows, positions, pages and slots.

Shapes: T rows of the step, Q sequences, B blocks of the longest sequence, R rows whose logits are
wanted, V vocabulary.
"""

from dataclasses import dataclass

import torch

from deepinfer_core.cache.replay import DecoderTruncation

__all__ = ["StepInputs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInputs:
    """One step. Rows of a sequence are adjacent and at consecutive positions.

    Attributes:
        token_T: int64 token ids; ids outside the vocabulary embed to zero.
        position_T: int64 absolute positions.
        sequence_T: int64, which of the Q sequences a row belongs to.
        previous_T3: int64 ids at distance 1, 2 and 3 before each row; -1 where there is none.
        image_T: bool, rows inside an image span.
        image_previous_T3: bool, the same for the ids of ``previous_T3``.
        embedding_TD: rows to use in place of the embedding where ``image_T``; None without images.
        block_table_QB: int64 block ids, -1 behind a sequence's last block.
        state_slot_Q: int64 state slots.
        starts: first position of each sequence in this step, on the host.
        row_counts: rows of each sequence, on the host.
        valid_starts: first position whose window keys exist, on the host; 0 outside a replay.
        sample_row_R: int64 rows whose logits are wanted.
        cached_ends: position behind the last whose entries are cached, on the host; rows before it
            are fed again and write neither entries nor index keys. Left empty: 0 everywhere.
        truncation: how the decoder half treats the rows in front of ``keep_from``; None if it keeps
            all rows.
        keep_from: first position that the decoder half keeps, on the host; the same in all chunks
            of a prompt. Left empty: 0 everywhere.
    """

    token_T: torch.Tensor
    position_T: torch.Tensor
    sequence_T: torch.Tensor
    previous_T3: torch.Tensor
    image_T: torch.Tensor
    image_previous_T3: torch.Tensor
    embedding_TD: torch.Tensor | None
    block_table_QB: torch.Tensor
    state_slot_Q: torch.Tensor
    starts: tuple[int, ...]
    row_counts: tuple[int, ...]
    valid_starts: tuple[int, ...]
    sample_row_R: torch.Tensor
    cached_ends: tuple[int, ...] = ()
    truncation: DecoderTruncation | None = None
    keep_from: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Fill in what was left empty."""
        nothing = (0,) * len(self.starts)
        object.__setattr__(self, "cached_ends", self.cached_ends or nothing)
        object.__setattr__(self, "keep_from", self.keep_from or nothing)
