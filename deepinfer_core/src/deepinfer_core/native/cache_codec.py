"""How do rows get into cache pages and out again with the compiled kernels?

Bytes are those of ``core.reference``, except that a NaN may have another payload or sign.

Shapes: T rows, D width.
"""

from __future__ import annotations

import ctypes

import torch

from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.attention import CacheCodec, CachePages
from deepinfer_core.native.addresses import address, row_major
from deepinfer_core.native.library import bind
from deepinfer_core.native.pages import PAGE_LETTERS, format_code, page_words
from deepinfer_core.native.tensors import type_code

__all__ = ["CpuCacheCodec"]

_FP32, _INT64 = torch.float32, torch.int64


class CpuCacheCodec(CacheCodec):
    """The formats that the kernels know.

    Args:
        library: the compiled kernels.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._store = bind(library, "di_store_rows", f"pllp{PAGE_LETTERS}")
        self._load = bind(library, "di_load_rows", f"{PAGE_LETTERS}plpl")
        self._entry_slots = bind(library, "di_entry_slots", "pllplplp")
        self._compress = bind(library, "di_compress_pairs", "ppllppppllllpl")

    def row_bytes(self, number_format: str, width: int) -> int:
        """Bytes of one row, data and scales."""
        return format_code(number_format)[0].row_bytes(width)

    def store(self, x_TD: torch.Tensor, slot_T: torch.Tensor, pages: CachePages) -> None:
        """Encode the rows that have a slot."""
        x_TD = row_major(x_TD)
        rows = x_TD.shape[0]
        self._store(
            address(x_TD, x_TD.dtype, (rows, pages.width)),
            type_code(x_TD.dtype),
            rows,
            address(slot_T, _INT64, (rows,)),
            *page_words(pages),
        )

    def load(self, pages: CachePages, slot_T: torch.Tensor, out_TD: torch.Tensor) -> None:
        """Decode rows, zeros where the slot is -1."""
        rows = slot_T.shape[0]
        self._load(
            *page_words(pages),
            address(slot_T, _INT64, (rows,)),
            rows,
            address(out_TD, out_TD.dtype, (rows, pages.width)),
            type_code(out_TD.dtype),
        )

    def entry_slots(
        self,
        entry_TL: torch.Tensor,
        block_table_QB: torch.Tensor,
        sequence_T: torch.Tensor,
        entries_per_block: int,
        slot_TL: torch.Tensor,
    ) -> None:
        """Look up the block of each entry.

        Raises:
            DeviceError: an entry is behind the last block of the table.
        """
        rows, length = entry_TL.shape
        block_table_QB = row_major(block_table_QB)
        self._entry_slots(
            address(entry_TL, _INT64, (rows, length)),
            rows,
            length,
            address(block_table_QB, _INT64, block_table_QB.shape),
            block_table_QB.shape[1],
            address(sequence_T, _INT64, (rows,)),
            entries_per_block,
            address(slot_TL, _INT64, (rows, length)),
        )

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
        """Weigh the two values of a group, channel by channel, with the softmax of their gates.

        Raises:
            NotSupported: the pages do not hold a gate and a value, or a tensor does not fit.
        """
        rows, width = value_TD.shape
        data, stride, rows_per_page, page_width, code, apart = page_words(state)
        if page_width != 2 * width:
            raise NotSupported(
                f"asked to keep gate and value of width {width}, found pages of width {page_width}",
                hint="give the state pages twice the width of a value",
            )
        self._compress(
            address(value_TD, _FP32, (rows, width)),
            address(gate_TD, _FP32, (rows, width)),
            rows,
            width,
            address(slot_T, _INT64, (rows,)),
            address(partner_slot_T, _INT64, (rows,)),
            address(partner_row_T, _INT64, (rows,)),
            data,
            stride,
            rows_per_page,
            code,
            apart,
            address(latent_TD, latent_TD.dtype, (rows, width)),
            type_code(latent_TD.dtype),
        )
