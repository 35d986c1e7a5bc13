"""How do rows get into cache pages and out again by kernels in TileLang?

Bytes are those of ``core.reference``, except that a NaN may have another payload or sign. Kernels
are compiled for a format, a width and a layout of pages, never for a number of rows or pages.

Shapes: T rows, D width.
"""

from __future__ import annotations

import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.attention import CacheCodec, CachePages
from deepinfer_core.interfaces.operators.cache import (
    CompressPairsSpec,
    EntrySlotsSpec,
    RowPagesSpec,
    RowsSpec,
)
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.interfaces.step_slots import SlotSizes, StepPlaces, StepSlots

from deepinfer_nvidia.attention.pages import known_format, page_views
from deepinfer_nvidia.attention.step_slots import SlotFinder
from deepinfer_nvidia.kernels import (
    attention_compress_pairs,
    attention_entry_slots,
    attention_keep_pairs,
    attention_load_rows,
    attention_store_rows,
)
from deepinfer_nvidia.kernels.arguments import check, dense, dtype_name, shaped
from deepinfer_nvidia.kernels.launch import Wanted, launches

__all__ = ["TileLangCacheCodec"]

_FP32, _INT64 = torch.float32, torch.int64


class TileLangCacheCodec(CacheCodec):
    """The formats that the kernels know.

    Args:
        kernels: runs them.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._store = launches(kernels, _store_kernel)
        self._load = launches(kernels, _load_kernel)
        self._slots = launches(kernels, _slots_kernel)
        self._step_slots = SlotFinder(kernels)
        self._compress = launches(kernels, _compress_kernel)
        self._keep = launches(kernels, _keep_kernel)

    def row_bytes(self, number_format: str, width: int) -> int:
        """Bytes of one row, data and scales."""
        return known_format(number_format).row_bytes(width)

    def store(self, x_TD: torch.Tensor, slot_T: torch.Tensor, pages: CachePages) -> None:
        """Encode the rows that have a slot."""
        rows = x_TD.shape[0]
        views = page_views(pages)
        if not rows:
            return
        store = self._store(views.spec, x_TD.dtype)
        store(
            x_TD=check(dense(x_TD), x_TD.dtype, rows, pages.width),
            slot_T=shaped(slot_T, _INT64, rows),
            **views.arguments(),
        )

    def load(self, pages: CachePages, slot_T: torch.Tensor, out_TD: torch.Tensor) -> None:
        """Decode rows, zeros where the slot is -1."""
        rows = slot_T.shape[0]
        views = page_views(pages)
        if not rows:
            return
        load = self._load(views.spec, out_TD.dtype)
        load(
            **views.arguments(),
            slot_T=shaped(slot_T, _INT64, rows),
            out_TD=check(out_TD, out_TD.dtype, rows, pages.width),
        )

    def entry_slots(
        self,
        entry_TL: torch.Tensor,
        block_table_QB: torch.Tensor,
        sequence_T: torch.Tensor,
        entries_per_block: int,
        slot_TL: torch.Tensor,
    ) -> None:
        """Find the slots of listed entries in one pass."""
        (rows, length), (sequences, blocks) = entry_TL.shape, block_table_QB.shape
        if not entry_TL.numel():
            return
        if not blocks:
            slot_TL.fill_(-1)
            return
        find = self._slots(entries_per_block)
        find(
            entry_TL=shaped(entry_TL, _INT64, rows, length),
            block_table_QB=shaped(block_table_QB.contiguous(), _INT64, sequences, blocks),
            sequence_T=shaped(sequence_T, _INT64, rows),
            slot_TL=shaped(slot_TL, _INT64, rows, length),
        )

    def step_slots(self, places: StepPlaces, sizes: SlotSizes) -> StepSlots:
        """Work out all slots of a decode step in one launch."""
        return self._step_slots(places, sizes)

    def compress_pairs(
        self,
        value_TD: torch.Tensor,
        gate_TD: torch.Tensor,
        slot_T: torch.Tensor,
        partner_slot_T: torch.Tensor,
        partner_row_T: torch.Tensor,
        state: CachePages,
        latent_TD: torch.Tensor,
    ) -> None:
        """Blend in one kernel, and keep the raw inputs in the next: all reads come before writes.

        Raises:
            NotSupported: the pages do not hold a gate and a value in fp32, or a tensor does not
                fit.
        """
        rows, width = value_TD.shape
        if state.width != 2 * width or state.number_format != "float32":
            raise NotSupported(
                f"asked to keep gate and value of width {width} in fp32, found pages of width"
                f" {state.width} in {state.number_format}",
                hint="give the state float32 pages of twice the width of a value",
            )
        if not rows:
            return
        views = page_views(state)
        raw = {
            "value_TD": check(dense(value_TD), _FP32, rows, width),
            "gate_TD": check(dense(gate_TD), _FP32, rows, width),
        }
        compress = self._compress(width, views.spec, latent_TD.dtype)
        compress(
            **raw,
            partner_slot_T=shaped(partner_slot_T, _INT64, rows),
            partner_row_T=shaped(partner_row_T, _INT64, rows),
            state_PRX=views.data_PRX,
            latent_TD=check(latent_TD, latent_TD.dtype, rows, width),
        )
        keep = self._keep(width, views.spec, latent_TD.dtype)
        keep(**raw, slot_T=shaped(slot_T, _INT64, rows), state_PRX=views.data_PRX)


def _store_kernel(pages: RowPagesSpec, dtype: torch.dtype) -> Wanted:
    spec = RowsSpec(pages=pages, dtype=dtype_name(dtype))
    return attention_store_rows.build, spec, attention_store_rows.default_tuning(spec)


def _load_kernel(pages: RowPagesSpec, dtype: torch.dtype) -> Wanted:
    spec = RowsSpec(pages=pages, dtype=dtype_name(dtype))
    return attention_load_rows.build, spec, attention_load_rows.default_tuning(spec)


def _slots_kernel(entries_per_block: int) -> Wanted:
    spec = EntrySlotsSpec(entries_per_block=entries_per_block)
    return attention_entry_slots.build, spec, attention_entry_slots.default_tuning(spec)


def _compress_kernel(width: int, state: RowPagesSpec, dtype: torch.dtype) -> Wanted:
    spec = _pairs_spec(width, state, dtype)
    return attention_compress_pairs.build, spec, attention_compress_pairs.default_tuning(spec)


def _keep_kernel(width: int, state: RowPagesSpec, dtype: torch.dtype) -> Wanted:
    spec = _pairs_spec(width, state, dtype)
    return attention_keep_pairs.build, spec, attention_keep_pairs.default_tuning(spec)


def _pairs_spec(width: int, state: RowPagesSpec, dtype: torch.dtype) -> CompressPairsSpec:
    return CompressPairsSpec(
        width=width,
        rows_per_page=state.rows_per_page,
        state_strides=state.data_strides,
        dtype=dtype_name(dtype),
        alignment_bytes=state.alignment_bytes,
    )
