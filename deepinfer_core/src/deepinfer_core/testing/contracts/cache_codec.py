"""Do rows come back from the caches as they were rounded, and do writes stay in their slots?

Shapes: T rows, D width, P pages, R rows of a page, B bytes.
"""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch

from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.attention import CacheCodec, CachePages
from deepinfer_core.numeric import encode_parts, fake_quantise
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.pages import make_pages
from deepinfer_core.testing.contracts.suite import (
    ContractSuite,
    accumulation,
    assert_rows_stand_alone,
    dtype_of,
)
from deepinfer_core.testing.oracles import attention as oracle
from deepinfer_core.testing.tolerance import assert_within, roundoff

__all__ = ["CacheCodecContract"]

WIDTH = 64
RING = 7


class CacheCodecContract(ContractSuite):
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

    def compress(
        self,
        component: CacheCodec,
        state: CachePages,
        value_TD: torch.Tensor,
        gate_TD: torch.Tensor,
        start: int,
        compute: str,
    ) -> torch.Tensor:
        """Feed a chunk of consecutive positions; the last ones that fit into the ring are kept."""
        rows = len(value_TD)
        position_T = torch.arange(start, start + rows)
        slot_T = torch.where(position_T >= start + rows - RING, position_T % RING, -1)
        latent = self.buffer(rows, value_TD.shape[1], dtype=dtype_of(compute))
        component.compress_pairs(
            value_TD,
            gate_TD,
            slot_T.to(self.device),
            ((position_T - 1) % RING).to(self.device),
            (torch.arange(rows) - 1).to(self.device),
            state,
            latent.tensor,
        )
        return latent.check()

    def ring(self, dtype: torch.dtype) -> CachePages:
        """State of one sequence."""
        name = str(dtype).removeprefix("torch.")
        return make_pages(self.device, name, 2 * WIDTH, pages=1, rows_per_page=RING)

    def test_a_pair_is_blended_channel_by_channel(
        self, component: CacheCodec, compute: str, generator: torch.Generator
    ) -> None:
        """Two exponentials, two products, a sum and a quotient: within 8 roundings."""
        dtype = accumulation(dtype_of(compute))
        value_TD = self.noise(generator, 12, WIDTH, dtype=dtype)
        gate_TD = 20 * self.noise(generator, 12, WIDTH, dtype=dtype)
        got = self.compress(component, self.ring(dtype), value_TD, gate_TD, 0, compute)
        for odd in range(1, 12, 2):
            pair = slice(odd - 1, odd + 1)
            want = oracle.blend_pair(value_TD[pair].cpu(), gate_TD[pair].cpu())
            size = value_TD[pair].cpu().double().abs().amax(0)
            # The argument of the exponential is off by u times its size, which is at most 200.
            error = (8 + 400) * roundoff(dtype) * size
            assert_within(got[odd], want, error + roundoff(dtype_of(compute)) * want.abs())

    @pytest.mark.parametrize("cut", [1, 2, 3, 6, 7, 8, 11])
    def test_a_pair_does_not_depend_on_how_the_prompt_is_cut(
        self, component: CacheCodec, compute: str, cut: int, generator: torch.Generator
    ) -> None:
        """Bit for bit, also where a chunk is longer than the ring that it reads and overwrites."""
        dtype = accumulation(dtype_of(compute))
        value_TD = self.noise(generator, 20, WIDTH, dtype=dtype)
        gate_TD = self.noise(generator, 20, WIDTH, dtype=dtype)
        whole, state = self.ring(dtype), self.ring(dtype)
        together = self.compress(component, whole, value_TD, gate_TD, 0, compute)
        parts = [
            self.compress(component, state, value_TD[:cut], gate_TD[:cut], 0, compute),
            self.compress(component, state, value_TD[cut:], gate_TD[cut:], cut, compute),
        ]
        assert_same_bits(torch.cat(parts)[1::2], together[1::2])
        assert_same_bits(state.data_PB, whole.data_PB)

    def test_the_state_keeps_gates_and_values_as_they_are(
        self, component: CacheCodec, compute: str, generator: torch.Generator
    ) -> None:
        """Gate first, then value; a row without a slot is not kept."""
        dtype = accumulation(dtype_of(compute))
        value_TD = self.noise(generator, 3, WIDTH, dtype=dtype)
        gate_TD = self.noise(generator, 3, WIDTH, dtype=dtype)
        state = self.ring(dtype)
        before = state.data_PB.clone()
        self.compress(component, state, value_TD, gate_TD, 0, compute)
        kept = self.buffer(3, 2 * WIDTH, dtype=dtype)
        component.load(state, self.slots(0, 1, 2), kept.tensor)
        assert_same_bits(kept.check(), torch.cat((gate_TD, value_TD), 1))
        row_bytes = 2 * WIDTH * dtype.itemsize
        assert_same_bits(state.data_PB[:, 3 * row_bytes :], before[:, 3 * row_bytes :])

    def test_a_pair_does_not_depend_on_its_batch(
        self, component: CacheCodec, compute: str, generator: torch.Generator
    ) -> None:
        """Forty sequences, each with its partner in its own ring, in every number and order."""
        self.require(component.properties.batch_invariant, "batch invariance")
        dtype = accumulation(dtype_of(compute))
        state = make_pages(
            self.device, str(dtype).removeprefix("torch."), 2 * WIDTH, pages=40, rows_per_page=RING
        )
        first_TX = self.noise(generator, 40, 2 * WIDTH, dtype=dtype)
        component.store(first_TX, torch.arange(40, device=self.device) * RING, state)
        value_TD = self.noise(generator, 40, WIDTH, dtype=dtype)
        gate_TD = self.noise(generator, 40, WIDTH, dtype=dtype)

        def run(rows: torch.Tensor) -> list[torch.Tensor]:
            rows = rows.to(self.device)
            latent = self.buffer(len(rows), WIDTH, dtype=dtype_of(compute))
            alone = torch.full_like(rows, -1)
            component.compress_pairs(
                value_TD[rows],
                gate_TD[rows],
                rows * RING + 1,
                rows * RING,
                alone,
                state,
                latent.tensor,
            )
            return [latent.check()]

        assert_rows_stand_alone(run, 40, generator)
