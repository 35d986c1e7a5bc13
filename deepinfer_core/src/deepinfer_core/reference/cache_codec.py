"""How do rows get into cache pages and out again, and how are pairs of tokens blended?

A page is bytes. Rows of a page either hold [data | scales] one after the other, or all data of the
page come first and all scales behind them.

Shapes: T rows, D width, P pages, R rows of a page, B bytes.
"""

from __future__ import annotations

import torch

from deepinfer_core.interfaces.attention import CacheCodec, CachePages
from deepinfer_core.interfaces.component import Properties
from deepinfer_core.numeric import (
    decode_parts,
    decode_rows,
    encode_parts,
    encode_rows,
    number_format,
    row_bytes,
)
from deepinfer_core.reference.promises import PROMISES

__all__ = ["ReferenceCacheCodec", "read_rows"]


class ReferenceCacheCodec(CacheCodec):
    """All formats of ``deepinfer_core.numeric`` that encode each row on its own."""

    @property
    def properties(self) -> Properties:
        """The promises of this component."""
        return PROMISES

    def row_bytes(self, number_format: str, width: int) -> int:
        """Bytes of one row, data and scales."""
        return row_bytes(number_format, width)

    def store(self, x_TD: torch.Tensor, slot_T: torch.Tensor, pages: CachePages) -> None:
        """Encode the rows that have a slot."""
        keep = slot_T >= 0
        if not bool(keep.all()):
            x_TD, slot_T = x_TD[keep], slot_T[keep]
        place = _place(pages, slot_T)
        if pages.scales_apart:
            data_PRB, scale_PRB = _parts(pages)
            data_PRB[place], scale_PRB[place] = encode_parts(x_TD, pages.number_format)
        else:
            _rows(pages)[place] = encode_rows(x_TD, pages.number_format)

    def load(self, pages: CachePages, slot_T: torch.Tensor, out_TD: torch.Tensor) -> None:
        """Decode rows, zeros where the slot is -1."""
        out_TD.copy_(read_rows(pages, slot_T, out_TD.dtype))

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
        """Weigh the two values of a group, channel by channel, with the softmax of their gates."""
        own_TX = torch.cat((gate_TD, value_TD), -1)
        if own_TX.shape[0] == 0:
            return
        kept_TX = read_rows(state, partner_slot_T, own_TX.dtype)
        fresh_TX = own_TX[partner_row_T.clamp(min=0)]
        first_TX = torch.where((partner_row_T >= 0)[:, None], fresh_TX, kept_TX)
        first_gate_TD, first_value_TD = first_TX.chunk(2, -1)
        largest_TD = torch.maximum(first_gate_TD, gate_TD)
        first_TD = torch.exp(first_gate_TD - largest_TD)
        second_TD = torch.exp(gate_TD - largest_TD)
        blend_TD = first_TD * first_value_TD + second_TD * value_TD
        latent_TD.copy_(blend_TD / (first_TD + second_TD))
        self.store(own_TX, slot_T, state)


def read_rows(pages: CachePages, slot: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Decode the rows of slots [...] to [..., D]; -1 gives zeros, whatever the pages hold."""
    present = slot >= 0
    place = _place(pages, slot.clamp(min=0))
    if pages.scales_apart:
        data_PRB, scale_PRB = _parts(pages)
        x = decode_parts(data_PRB[place], scale_PRB[place], pages.number_format, dtype)
    else:
        x = decode_rows(_rows(pages)[place], pages.number_format, pages.width, dtype)
    return x if bool(present.all()) else x.masked_fill(~present[..., None], 0)


def _place(pages: CachePages, slot: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return slot // pages.rows_per_page, slot % pages.rows_per_page


def _rows(pages: CachePages) -> torch.Tensor:
    """View pages as [P, R, B]; pages may lie apart from each other, and have bytes to spare."""
    return _region(pages, 0, row_bytes(pages.number_format, pages.width))


def _parts(pages: CachePages) -> tuple[torch.Tensor, torch.Tensor]:
    """View pages as data [P, R, B] and scales [P, R, B]."""
    form = number_format(pages.number_format)
    data_bytes = form.data_bytes(pages.width)
    data_PRB = _region(pages, 0, data_bytes)
    scale_start = pages.rows_per_page * data_bytes
    return data_PRB, _region(pages, scale_start, form.scale_bytes(pages.width))


def _region(pages: CachePages, start: int, bytes_a_row: int) -> torch.Tensor:
    rows = pages.rows_per_page
    region_PX = pages.data_PB[:, start : start + rows * bytes_a_row]
    return region_PX.view(region_PX.shape[0], rows, bytes_a_row)
