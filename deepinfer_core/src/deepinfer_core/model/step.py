"""What does the model need to know about one step, and what does it give back?

The model never sees a request: only rows, positions, pages and slots. What the host decides by is
on the host, and the same numbers are on the device for index arithmetic, so that nobody has to
bring them there, or fetch them, while a step is launched.

Shapes: T rows of the step, Q sequences, B blocks of the longest sequence, R rows whose logits are
wanted, V vocabulary.
"""

from dataclasses import InitVar, dataclass, field

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
        starts: first position of each sequence in this step, on the host. Where a sequence decodes
            behind drafts that the host does not know to be kept, the highest that it may have; the
            device knows the right one, up to ``max_backtracking`` - 1 lower.
        row_counts: rows of each sequence, on the host.
        valid_starts: first position whose window keys exist, on the host; 0 outside a replay.
        sample_row_R: int64 rows whose logits are wanted.
        cached_ends: position behind the last whose entries are cached, on the host; rows before it
            are fed again and write neither entries nor index keys. Left empty: 0 everywhere.
        truncation: how the decoder half treats the rows in front of ``keep_from``; None if it keeps
            all rows.
        keep_from: first position that the decoder half keeps, on the host; the same in all chunks
            of a prompt. Left empty: 0 everywhere.
        sample_rows: the same as ``sample_row_R``, on the host; None: not known there.
        placed_5Q: the five numbers of each sequence as int64 on the device, in the order of the
            fields below; None: they are brought there now.
        start_Q, row_count_Q, valid_start_Q, cached_end_Q, keep_from_Q: the same as ``starts``,
            ``row_counts``, ``valid_starts``, ``cached_ends`` and ``keep_from``, on the device.
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
    sample_rows: tuple[int, ...] | None = None
    placed_5Q: InitVar[torch.Tensor | None] = None
    start_Q: torch.Tensor = field(init=False)
    row_count_Q: torch.Tensor = field(init=False)
    valid_start_Q: torch.Tensor = field(init=False)
    cached_end_Q: torch.Tensor = field(init=False)
    keep_from_Q: torch.Tensor = field(init=False)

    def __post_init__(self, placed_5Q: torch.Tensor | None) -> None:
        """Fill in what was left empty."""
        nothing = (0,) * len(self.starts)
        object.__setattr__(self, "cached_ends", self.cached_ends or nothing)
        object.__setattr__(self, "keep_from", self.keep_from or nothing)
        if placed_5Q is None:
            numbers = (
                self.starts,
                self.row_counts,
                self.valid_starts,
                self.cached_ends,
                self.keep_from,
            )
            placed_5Q = torch.tensor(numbers, dtype=torch.int64, device=self.position_T.device)
        for name, value_Q in zip(_ON_DEVICE, placed_5Q.unbind(), strict=True):
            object.__setattr__(self, name, value_Q)


_ON_DEVICE = ("start_Q", "row_count_Q", "valid_start_Q", "cached_end_Q", "keep_from_Q")
