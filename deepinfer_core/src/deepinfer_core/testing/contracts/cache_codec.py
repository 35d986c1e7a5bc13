"""Do rows come back from the caches as they were rounded, and do writes stay in their slots?

Shapes: T rows, D width, P pages, R rows of a page, B bytes.
"""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch

from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.attention import CacheCodec
from deepinfer_core.numeric import encode_parts, fake_quantise
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.pages import make_pages
from deepinfer_core.testing.contracts.pair_compression import PairCompressionContract
from deepinfer_core.testing.contracts.suite import (
    ContractSuite,
    dtype_of,
)

__all__ = ["CacheCodecContract"]

WIDTH = 64


class CacheCodecContract(PairCompressionContract):
    """Tests of ``CacheCodec``.

    Attributes:
        cache_formats: formats of cached rows.
        row_sizes: published sizes (format, width, bytes).
    """

    cache_formats: ClassVar[tuple[str, ...]] = (
        "mxfp8",
        "fp4_e4m3x16",
        "mxfp4",
        "bfloat16",
        "float32",
        "float64",
    )
    row_sizes: ClassVar[tuple[tuple[str, int, int], ...]] = (
        ("mxfp8", 512, 528),
        ("fp4_e4m3x16", 512, 288),
        ("mxfp4", 128, 68),
        ("bfloat16", 512, 1024),
        ("float32", 1024, 4096),
    )
    sweeps: ClassVar[dict[str, str]] = {
        **ContractSuite.sweeps,
        "cache_format": "cache_formats",
        "row_size": "row_sizes",
    }

    def slots(self, *numbers: int) -> torch.Tensor:
        """Slots as a component wants them."""
        return torch.tensor(numbers, dtype=torch.int64, device=self.device)

    def test_a_row_takes_the_published_number_of_bytes(
        self, component: CacheCodec, row_size: tuple[str, int, int]
    ) -> None:
        """Data and scales together."""
        name, width, size_bytes = row_size
        assert component.row_bytes(name, width) == size_bytes

    def test_an_unknown_format_is_refused(self, component: CacheCodec) -> None:
        """So is a format whose scales are shared by several rows."""
        for name in ("no_such_format", "fp8_32x32"):
            with pytest.raises(NotSupported, match=name):
                component.row_bytes(name, 64)

    @pytest.mark.parametrize("scales_apart", [False, True])
    @pytest.mark.parametrize("rows", [0, 1, 9])
    def test_a_row_comes_back_as_its_format_rounds_it(
        self,
        component: CacheCodec,
        cache_format: str,
        compute: str,
        scales_apart: bool,
        rows: int,
        generator: torch.Generator,
    ) -> None:
        """Bit for bit, from slots in any order."""
        pages = make_pages(self.device, cache_format, WIDTH, scales_apart=scales_apart)
        x_TD = self.noise(generator, rows, WIDTH, dtype=dtype_of(compute))
        slot_T = torch.randperm(20, generator=generator)[:rows].to(self.device)
        component.store(x_TD, slot_T, pages)
        out = self.buffer(rows, WIDTH, dtype=dtype_of(compute))
        component.load(pages, slot_T, out.tensor)
        assert_same_bits(out.check().cpu(), fake_quantise(x_TD.cpu(), cache_format))

    @pytest.mark.parametrize("scales_apart", [False, True])
    def test_bytes_lie_where_the_layout_says(
        self,
        component: CacheCodec,
        cache_format: str,
        scales_apart: bool,
        generator: torch.Generator,
    ) -> None:
        """Slot 6 is row 1 of page 1 when pages have five rows; all other bytes stay."""
        pages = make_pages(self.device, cache_format, WIDTH, scales_apart=scales_apart)
        x_TD = self.noise(generator, 1, WIDTH, dtype=torch.bfloat16)
        want_PB = pages.data_PB.cpu().clone()
        data, scale = (part[0] for part in encode_parts(x_TD.cpu(), cache_format))
        if scales_apart:
            want_PB[1, len(data) : 2 * len(data)] = data
            first = 5 * len(data) + len(scale)
            want_PB[1, first : first + len(scale)] = scale
        else:
            row = torch.cat((data, scale))
            want_PB[1, len(row) : 2 * len(row)] = row
        component.store(x_TD, self.slots(6), pages)
        assert_same_bits(pages.data_PB.cpu(), want_PB)

    def test_the_golden_row_has_its_golden_bytes(self, component: CacheCodec) -> None:
        """The published example of the window format: 32 codes and one scale of 2^-6."""
        index = torch.arange(32)
        x_TD = (((7 * index % 32) - 15.5) * 0.37).to(torch.bfloat16)[None].to(self.device)
        pages = make_pages(self.device, "mxfp8", 32)
        component.store(x_TD, self.slots(0), pages)
        assert bytes(pages.data_PB[0, :33].tolist()).hex(" ") == (
            "fc f5 e1 70 79 f9 f0 61 75 7c f6 e7 6d 78 fa f2"
            " 54 73 7b f8 ea 6a 78 fb f3 d4 72 7a f8 ed 67 76 79"
        )

    def test_zeros_and_values_of_any_size_come_back_as_their_format_rounds_them(
        self, component: CacheCodec, cache_format: str
    ) -> None:
        """Groups of zeros and minus zeros, of one size and of many up to 1e30, and ties."""
        decade_D = torch.tensor([10.0]).pow(torch.linspace(-30, 30, WIDTH))
        x_TD = torch.stack(
            [
                torch.zeros(WIDTH),
                -torch.zeros(WIDTH),
                torch.arange(WIDTH) // 32 * torch.ones(WIDTH),
                torch.full((WIDTH,), 1e30),
                torch.full((WIDTH,), -1e-30),
                decade_D,
                -decade_D.flip(0),
                torch.arange(WIDTH) * 0.25 - 8,
                (torch.arange(WIDTH) * 8 + 4) - 256.0,
            ]
        )
        pages = make_pages(self.device, cache_format, WIDTH)
        slots = self.slots(*range(len(x_TD)))
        component.store(x_TD.to(self.device), slots, pages)
        out = self.buffer(*x_TD.shape, dtype=torch.float32)
        component.load(pages, slots, out.tensor)
        assert_same_bits(out.check().cpu(), fake_quantise(x_TD, cache_format))

    def test_nan_stays_nan(self, component: CacheCodec, cache_format: str) -> None:
        """A number in its place would hide a fault; groups beside it are unharmed."""
        x_TD = torch.ones(1, WIDTH)
        x_TD[0, 3] = torch.nan
        pages = make_pages(self.device, cache_format, WIDTH)
        component.store(x_TD.to(self.device), self.slots(2), pages)
        out = self.buffer(1, WIDTH, dtype=torch.float32)
        component.load(pages, self.slots(2), out.tensor)
        got, want = out.check().cpu(), fake_quantise(x_TD, cache_format)
        assert got.isnan().tolist() == want.isnan().tolist()
        assert_same_bits(got.nan_to_num(), want.nan_to_num())

    def test_a_row_without_a_slot_is_not_written(
        self, component: CacheCodec, cache_format: str, generator: torch.Generator
    ) -> None:
        """Not anywhere, least of all into the last slot."""
        pages = make_pages(self.device, cache_format, WIDTH)
        x_TD = self.noise(generator, 3, WIDTH, dtype=torch.bfloat16)
        untouched = pages.data_PB.cpu().clone()
        component.store(x_TD, self.slots(-1, -1, -1), pages)
        assert_same_bits(pages.data_PB.cpu(), untouched)
        component.store(x_TD, self.slots(-1, 4, -1), pages)
        out = self.buffer(1, WIDTH, dtype=torch.bfloat16)
        component.load(pages, self.slots(4), out.tensor)
        assert_same_bits(out.check().cpu(), fake_quantise(x_TD[1:2].cpu(), cache_format))

    def test_an_absent_slot_reads_as_zeros(self, component: CacheCodec, cache_format: str) -> None:
        """Whatever the pages hold, and all ones is a NaN in most formats."""
        pages = make_pages(self.device, cache_format, WIDTH)
        pages.data_PB.fill_(0xFF)
        out = self.buffer(2, WIDTH, dtype=torch.float32)
        component.load(pages, self.slots(-1, -1), out.tensor)
        assert_same_bits(out.check().cpu(), torch.zeros(2, WIDTH))

    def test_a_ring_that_wraps_replaces_its_oldest_row_only(
        self, component: CacheCodec, cache_format: str, generator: torch.Generator
    ) -> None:
        """Position p lives in slot p modulo the length."""
        pages = make_pages(self.device, cache_format, WIDTH)
        x_TD = self.noise(generator, 6, WIDTH, dtype=torch.bfloat16)
        for position in range(6):
            component.store(x_TD[position : position + 1], self.slots(position % 5), pages)
        out = self.buffer(5, WIDTH, dtype=torch.bfloat16)
        component.load(pages, self.slots(1, 2, 3, 4, 0), out.tensor)
        assert_same_bits(out.check().cpu(), fake_quantise(x_TD[1:].cpu(), cache_format))

    @pytest.mark.parametrize("rows", [0, 1, 7])
    @pytest.mark.parametrize("per_block", [1, 8, 12])
    def test_entries_are_found_in_the_blocks_of_their_sequence(
        self, component: CacheCodec, rows: int, per_block: int, generator: torch.Generator
    ) -> None:
        """Some lists are empty, some end early, some reach the last entry of the last block."""
        table_QB = 1 + torch.randperm(3 * 5, generator=generator).view(3, 5)
        sequence_T = torch.randint(3, (rows,), generator=generator)
        entry_TL = torch.full((rows, 9), -1)
        for row in range(rows):
            count = min(2 * row, 9, 5 * per_block)
            chosen = torch.randperm(5 * per_block, generator=generator)[:count]
            entry_TL[row, :count] = chosen.sort().values
            if count:
                entry_TL[row, count - 1] = 5 * per_block - 1
        out = self.buffer(rows, 9, dtype=torch.int64)
        component.entry_slots(
            entry_TL.to(self.device),
            table_QB.to(self.device),
            sequence_T.to(self.device),
            per_block,
            out.tensor,
        )
        for row, entries in enumerate(entry_TL.tolist()):
            page_B = table_QB[sequence_T[row]].tolist()
            want = [page_B[i // per_block] * per_block + i % per_block for i in entries if i >= 0]
            assert out.check()[row].tolist() == want + [-1] * (9 - len(want))
