"""How are the rows of a step handed to the attention components?

Rows that read the rings go to the ``decode`` component, rows of longer chunks to ``prefill``, with
the same lists of keys (see ``windows``). A step may hold both.

Shapes: T rows, S rows of one kind, N heads, W head width, L listed entries.
"""

from collections.abc import Sequence

import torch

from deepinfer_core.interfaces.attention import (
    AttentionSpec,
    CachePages,
    KeySource,
    SparseAttention,
)
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.model.operators import Planned
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.model.row_operators import RowOperators
from deepinfer_core.model.windows import ChunkWindows, WindowStep

__all__ = ["ListedAttention", "StepAttention"]


class ListedAttention:
    """One attention component with its plans.

    Args:
        attention: attends.
        heads: query heads.
        head_width: channels of a head.
        rows: fixes the dtypes.
        compute: dtype name of queries and outputs.
    """

    def __init__(
        self,
        attention: SparseAttention,
        *,
        heads: int,
        head_width: int,
        rows: RowOperators,
        compute: str,
    ) -> None:
        self._attention = attention
        self._heads = heads
        self._head_width = head_width
        self._rows = rows
        self._compute = compute
        self._scale = head_width**-0.5
        self._plans: dict[tuple[int, ...], Planned[Plan]] = {}

    def __call__(
        self, q_TNW: torch.Tensor, sources: Sequence[KeySource], sink_N: torch.Tensor
    ) -> torch.Tensor:
        """Attend over the listed keys of all sources, [T, N, W]."""
        return self.run(q_TNW, sources, sink_N)[0]

    def run(
        self, q_TNW: torch.Tensor, sources: Sequence[KeySource], sink_N: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attend; the result [T, N, W], and the log of the sum over keys [T, N]."""
        out_TNW = torch.empty_like(q_TNW)
        lse_TN = torch.empty(q_TNW.shape[:2], dtype=self._rows.accumulate, device=q_TNW.device)
        plan = self.plan(sources, q_TNW.shape[0])
        self._attention.run(plan, q_TNW, sources, sink_N, self._scale, out_TNW, lse_TN)
        return out_TNW, lse_TN

    def plan(self, sources: Sequence[KeySource], rows: int) -> Plan:
        """The plan for so many rows with lists of these lengths."""
        lengths = tuple(source.slot_TL.shape[1] for source in sources)
        if lengths not in self._plans:
            self._plans[lengths] = self._planned(lengths)
        return self._plans[lengths](rows)

    def _planned(self, lengths: tuple[int, ...]) -> Planned[Plan]:
        spec = AttentionSpec(
            heads=self._heads,
            head_width=self._head_width,
            list_lengths=lengths,
            compute=self._compute,
        )
        return Planned(lambda max_rows: self._attention.plan(spec, max_rows))


class StepAttention:
    """Attention of all rows of a step over their windows and, if given, selected entries.

    Args:
        parts: components and numerics.
        heads: query heads.
        head_width: channels of a head.
        rows: row operators.

    Attributes:
        decode, prefill: attend over rings, and over the workspace of longer chunks.
    """

    def __init__(
        self, parts: ModelParts, *, heads: int, head_width: int, rows: RowOperators
    ) -> None:
        compute = parts.numerics.compute
        self._codec = parts.codec
        self._rows = rows
        self._window_format = parts.numerics.window_format
        self.decode, self.prefill = (
            ListedAttention(
                attention, heads=heads, head_width=head_width, rows=rows, compute=compute
            )
            for attention in (parts.decode, parts.prefill)
        )

    def __call__(
        self,
        q_TNW: torch.Tensor,
        key_TW: torch.Tensor,
        sink_N: torch.Tensor,
        rings: CachePages,
        windows: WindowStep,
        entries: KeySource | None,
    ) -> torch.Tensor:
        """Write the step's window keys, then attend.

        Args:
            q_TNW: rotated queries.
            key_TW: the rows' own window keys.
            sink_N: sink logits.
            rings: the layer's window keys.
            windows: which of them each row sees.
            entries: the selected entries of each row; None in layers without.

        Returns:
            [T, N, W], compute dtype.
        """
        decode, chunks = windows.decode, windows.chunks
        # A chunk's history must be read before its last rows take the place of it.
        workspace = self._workspace(key_TW, rings, chunks) if chunks else None
        self._codec.store(key_TW, windows.write_slot_T, rings)
        if chunks is None and decode is not None:
            return self.decode(q_TNW, _sources(rings, decode.slot_SW, entries), sink_N)
        out_TNW = torch.empty_like(q_TNW)
        for kind, pages, attention in (
            (decode, rings, self.decode),
            (chunks, workspace, self.prefill),
        ):
            if kind is None or pages is None:
                continue
            sources = _sources(pages, kind.slot_SW, _of_rows(entries, kind.row_S))
            if kind.row_S is None:
                return attention(q_TNW, sources, sink_N)
            out_TNW[kind.row_S] = attention(q_TNW[kind.row_S], sources, sink_N)
        return out_TNW

    def _workspace(
        self, key_TW: torch.Tensor, rings: CachePages, chunks: ChunkWindows
    ) -> CachePages:
        own_SW = key_TW if chunks.row_S is None else key_TW[chunks.row_S]
        history, width = chunks.history_slot_H.shape[0], key_TW.shape[1]
        rows = history + own_SW.shape[0]
        keys_RW = torch.empty((rows, width), dtype=key_TW.dtype, device=key_TW.device)
        self._codec.load(rings, chunks.history_slot_H, keys_RW[:history])
        keys_RW[history:] = self._rows.round_trip(own_SW, self._window_format)
        return CachePages(
            data_PB=keys_RW.view(torch.uint8).view(1, -1),
            rows_per_page=rows,
            width=width,
            number_format=str(key_TW.dtype).removeprefix("torch."),
        )


def _sources(
    pages: CachePages, slot_SW: torch.Tensor, entries: KeySource | None
) -> tuple[KeySource, ...]:
    window = KeySource(pages=pages, slot_TL=slot_SW)
    return (window,) if entries is None else (window, entries)


def _of_rows(entries: KeySource | None, row_S: torch.Tensor | None) -> KeySource | None:
    if entries is None or row_S is None:
        return entries
    return KeySource(pages=entries.pages, slot_TL=entries.slot_TL[row_S])
