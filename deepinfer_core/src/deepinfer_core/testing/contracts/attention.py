"""Does a row attend to the keys it lists, to all of them, and to nothing else?

Shapes: T rows, N heads, D width, L listed keys.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest
import torch

from deepinfer_core.interfaces.attention import (
    AttentionSpec,
    CachePages,
    KeySource,
    SparseAttention,
)
from deepinfer_core.numeric import encode_rows, fake_quantise
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

__all__ = ["AttentionContract"]

PAGES, ROWS_PER_PAGE = 5, 8
SLOTS = PAGES * ROWS_PER_PAGE
SCALE = 0.11
"""No power of two, as that of 512 channels is not either: scaling in bf16 would show."""


class AttentionContract(ContractSuite):
    """Tests of ``SparseAttention``.

    Attributes:
        source_formats: number formats of the window and of the entries.
        heads: N.
        width: D.
        weight_roundoff: unit roundoff of softmax weights where a backend rounds them; 0 if not.
    """

    source_formats: ClassVar[tuple[tuple[str, str], ...]] = (
        ("mxfp8", "fp4_e4m3x16"),
        ("bfloat16", "bfloat16"),
        ("float64", "float32"),
    )
    heads: ClassVar[int] = 4
    width: ClassVar[int] = 64
    weight_roundoff: ClassVar[float] = 0.0
    sweeps: ClassVar[dict[str, str]] = {**ContractSuite.sweeps, "formats": "source_formats"}

    def keys(
        self, generator: torch.Generator, number_format: str
    ) -> tuple[CachePages, torch.Tensor]:
        """Full pages, and the fp64 values of their slots."""
        pages = make_pages(
            self.device, number_format, self.width, pages=PAGES, rows_per_page=ROWS_PER_PAGE
        )
        x_SD = torch.randn(SLOTS, self.width, generator=generator, dtype=torch.float64)
        rows_SB = encode_rows(x_SD, number_format)
        used = ROWS_PER_PAGE * rows_SB.shape[1]
        pages.data_PB[:, :used] = rows_SB.view(PAGES, used).to(self.device)
        return pages, fake_quantise(x_SD, number_format)

    def lists(self, generator: torch.Generator, rows: int, length: int) -> torch.Tensor:
        """Distinct slots for each row, about a third of them absent at random places."""
        slot_TL = torch.rand(rows, SLOTS, generator=generator).argsort(1)[:, :length]
        absent_TL = torch.rand(rows, length, generator=generator) < 0.3
        return slot_TL.masked_fill(absent_TL, -1).to(self.device)

    def attend(
        self,
        component: SparseAttention,
        q_TND: torch.Tensor,
        sources: list[KeySource],
        sink_N: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run into guarded buffers."""
        spec = AttentionSpec(
            heads=self.heads,
            head_width=self.width,
            list_lengths=tuple(source.slot_TL.shape[1] for source in sources),
            compute=str(q_TND.dtype).removeprefix("torch."),
        )
        rows = len(q_TND)
        out = self.buffer(rows, self.heads, self.width, dtype=q_TND.dtype)
        lse = self.buffer(rows, self.heads, dtype=accumulation(q_TND.dtype))
        plan = component.plan(spec, max(rows, 1))
        before = [source.pages.data_PB.clone() for source in sources]
        component.run(plan, q_TND, sources, sink_N, SCALE, out.tensor, lse.tensor)
        for source, data_PB in zip(sources, before, strict=True):
            assert_same_bits(source.pages.data_PB, data_PB)
        return out.check(), lse.check()

    def check_against_oracle(
        self,
        component: SparseAttention,
        q_TND: torch.Tensor,
        sources: list[KeySource],
        values: list[torch.Tensor],
        sink_N: torch.Tensor,
    ) -> None:
        """Compare with fp64, within the roundings of one softmax and two products.

        A score is off by (D + 2) u times the sum of its absolute products (twice that for the
        difference to the largest), and the exponential of it by as much, relatively. Weights and
        their sum add L + 8 roundings each.
        """
        out, lse = self.attend(component, q_TND, sources, sink_N)
        u = roundoff(accumulation(q_TND.dtype))
        for row in range(len(q_TND)):
            lists = [source.slot_TL[row].cpu() for source in sources]
            key_LD = torch.cat([x[s[s >= 0]] for x, s in zip(values, lists, strict=True)])
            q_ND, sink = q_TND[row].cpu(), sink_N.cpu()
            want, want_lse = oracle.attend(q_ND, key_LD, sink, SCALE)
            products_NL = SCALE * q_ND.double().abs() @ key_LD.abs().t()
            largest_N = products_NL.amax(1) if len(key_LD) else torch.zeros(len(q_ND)).double()
            off_N = (self.width + 4) * u * (2 * largest_N + sink.double().abs())
            off_N += (2 * len(key_LD) + 16) * (u + self.weight_roundoff)
            size_ND = oracle.attend(q_ND, key_LD, sink, SCALE)[0].abs()
            if len(key_LD):
                size_ND = size_ND.clamp(min=float(key_LD.abs().max()))
            bound = off_N[:, None] * size_ND + roundoff(q_TND.dtype) * want.abs()
            assert_within(out[row], want, bound)
            assert_within(lse[row], want_lse, off_N + 4 * u * want_lse.abs().nan_to_num(0, 0, 0))

    @pytest.mark.parametrize("lengths", [(1,), (16,), (1, 1), (15, 17), (33, 7)])
    def test_attention_matches_fp64(
        self,
        component: SparseAttention,
        lengths: tuple[int, ...],
        formats: tuple[str, str],
        compute: str,
        generator: torch.Generator,
    ) -> None:
        """Lists of several lengths with absent entries, sinks of both signs."""
        q_TND = self.noise(generator, 5, self.heads, self.width, dtype=dtype_of(compute))
        sink_N = self.noise(generator, self.heads, dtype=torch.float32)
        sources, values = [], []
        for length, number_format in zip(lengths, formats, strict=False):
            pages, x_SD = self.keys(generator, number_format)
            sources.append(KeySource(pages=pages, slot_TL=self.lists(generator, 5, length)))
            values.append(x_SD)
        self.check_against_oracle(component, q_TND, sources, values, sink_N)

    @pytest.mark.parametrize("lengths", [(127,), (128,), (129,), (128, 257)])
    def test_long_lists_are_attended_as_a_whole(
        self,
        component: SparseAttention,
        lengths: tuple[int, ...],
        compute: str,
        generator: torch.Generator,
    ) -> None:
        """Around the tiles in which kernels take their keys; keys may stand several times."""
        q_TND = self.noise(generator, 2, self.heads, self.width, dtype=dtype_of(compute))
        sink_N = self.noise(generator, self.heads, dtype=torch.float32)
        sources, values = [], []
        for length in lengths:
            pages, x_SD = self.keys(generator, "bfloat16")
            slot_TL = torch.randint(-SLOTS // 4, SLOTS, (2, length), generator=generator)
            slot_TL = slot_TL.clamp(min=-1).to(self.device)
            sources.append(KeySource(pages=pages, slot_TL=slot_TL))
            values.append(x_SD)
        self.check_against_oracle(component, q_TND, sources, values, sink_N)

    def source(
        self, generator: torch.Generator, slots: list[list[int]], number_format: str = "bfloat16"
    ) -> tuple[KeySource, torch.Tensor]:
        """One source with these lists, and its values."""
        pages, x_SD = self.keys(generator, number_format)
        slot_TL = torch.tensor(slots, dtype=torch.int64, device=self.device)
        return KeySource(pages=pages, slot_TL=slot_TL), x_SD

    def test_no_rows_give_no_rows(
        self, component: SparseAttention, compute: str, generator: torch.Generator
    ) -> None:
        """An empty step."""
        source, _ = self.source(generator, [[0, 1]])
        source = replace(source, slot_TL=source.slot_TL[:0])
        q_TND = self.noise(generator, 0, self.heads, self.width, dtype=dtype_of(compute))
        sink_N = torch.zeros(self.heads, device=self.device)
        out, lse = self.attend(component, q_TND, [source], sink_N)
        assert (len(out), len(lse)) == (0, 0)

    def test_a_row_without_keys_gives_zeros_and_an_infinite_lse(
        self, component: SparseAttention, compute: str, generator: torch.Generator
    ) -> None:
        """Only the sink is left; the rows beside it have keys."""
        source, x_SD = self.source(generator, [[3, 4], [-1, -1], [-1, 5]])
        q_TND = self.noise(generator, 3, self.heads, self.width, dtype=dtype_of(compute))
        sink_N = self.noise(generator, self.heads, dtype=torch.float32)
        out, lse = self.attend(component, q_TND, [source], sink_N)
        assert_same_bits(out[1], torch.zeros_like(out[1]))
        assert_same_bits(lse[1], torch.full_like(lse[1], torch.inf))
        self.check_against_oracle(component, q_TND, [source], [x_SD], sink_N)

    @pytest.mark.parametrize("sink", [-1e4, -30.0, 30.0, 1e4])
    def test_a_sink_far_from_the_keys_neither_overflows_nor_vanishes(
        self, component: SparseAttention, compute: str, sink: float, generator: torch.Generator
    ) -> None:
        """Far below it is as if it were not there, far above it takes everything."""
        source, x_SD = self.source(generator, [[3, 4, 5]])
        q_TND = self.noise(generator, 1, self.heads, self.width, dtype=dtype_of(compute))
        sink_N = torch.full((self.heads,), sink, device=self.device)
        self.check_against_oracle(component, q_TND, [source], [x_SD], sink_N)

    def test_large_scores_do_not_overflow(
        self, component: SparseAttention, compute: str, generator: torch.Generator
    ) -> None:
        """Scores in the thousands, of both signs: one key wins."""
        source, _ = self.source(generator, [[3, 4, 5, 6]])
        q_TND = 3e3 * self.noise(generator, 1, self.heads, self.width, dtype=dtype_of(compute))
        sink_N = torch.zeros(self.heads, device=self.device)
        out, lse = self.attend(component, q_TND, [source], sink_N)
        assert bool(out.isfinite().all())
        assert bool(lse.isfinite().all())

    def test_a_key_that_is_listed_twice_counts_twice(
        self, component: SparseAttention, generator: torch.Generator
    ) -> None:
        """A token may be a window key and part of an entry; nothing is merged."""
        source, x_SD = self.source(generator, [[3, 3, 4, -1]])
        q_TND = self.noise(generator, 1, self.heads, self.width, dtype=torch.float32)
        sink_N = self.noise(generator, self.heads, dtype=torch.float32)
        self.check_against_oracle(component, q_TND, [source], [x_SD], sink_N)

    def test_rows_that_nobody_lists_are_never_read(
        self, component: SparseAttention, compute: str, generator: torch.Generator
    ) -> None:
        """They hold NaN, slot 0 and the last slot included."""
        source, x_SD = self.source(generator, [[9, -1, 12], [-1, -1, 12]])
        used = ROWS_PER_PAGE * self.width * 2
        listed = source.pages.data_PB[1, :used].clone()
        source.pages.data_PB.fill_(0xFF)
        source.pages.data_PB[1, :used] = listed
        q_TND = self.noise(generator, 2, self.heads, self.width, dtype=dtype_of(compute))
        sink_N = self.noise(generator, self.heads, dtype=torch.float32)
        self.check_against_oracle(component, q_TND, [source], [x_SD], sink_N)

    def test_pages_do_not_matter_only_the_order_of_keys_does(
        self, component: SparseAttention, compute: str, generator: torch.Generator
    ) -> None:
        """A ring that has wrapped gives the bits of the same keys in a straight line."""
        straight, _ = self.source(generator, [list(range(6, 14))], "mxfp8")
        ring = make_pages(self.device, "mxfp8", self.width, pages=2, rows_per_page=8)
        row_bytes = self.width + self.width // 32
        for position in range(6, 14):
            page, row = divmod(position, ROWS_PER_PAGE)
            data = straight.pages.data_PB[page, row * row_bytes : (row + 1) * row_bytes]
            slot = position % 8
            ring.data_PB[1, slot * row_bytes : (slot + 1) * row_bytes] = data
        slots = torch.tensor([[8 + p % 8 for p in range(6, 14)]], device=self.device)
        wrapped = KeySource(pages=ring, slot_TL=slots)
        q_TND = self.noise(generator, 1, self.heads, self.width, dtype=dtype_of(compute))
        sink_N = self.noise(generator, self.heads, dtype=torch.float32)
        out, lse = self.attend(component, q_TND, [straight], sink_N)
        out_of_ring, lse_of_ring = self.attend(component, q_TND, [wrapped], sink_N)
        assert_same_bits(out_of_ring, out)
        assert_same_bits(lse_of_ring, lse)

    def test_a_row_does_not_depend_on_its_batch(
        self,
        component: SparseAttention,
        compute: str,
        formats: tuple[str, str],
        generator: torch.Generator,
    ) -> None:
        """Every row count up to 70, at both ends, and in another order: a prompt or a decode."""
        self.require(component.properties.batch_invariant, "batch invariance")
        q_TND = self.noise(generator, 70, self.heads, self.width, dtype=dtype_of(compute))
        sink_N = self.noise(generator, self.heads, dtype=torch.float32)
        sources = [
            KeySource(
                pages=self.keys(generator, number_format)[0],
                slot_TL=self.lists(generator, 70, length),
            )
            for number_format, length in zip(formats, (16, 9), strict=True)
        ]

        def run(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            rows = rows.to(self.device)
            some = [replace(source, slot_TL=source.slot_TL[rows]) for source in sources]
            return self.attend(component, q_TND[rows], some, sink_N)

        assert_rows_stand_alone(run, 70, generator)

    def test_the_same_call_gives_the_same_bits(
        self, component: SparseAttention, generator: torch.Generator
    ) -> None:
        """Twice the same, with other work in between."""
        self.require(component.properties.deterministic, "determinism")
        pages, _ = self.keys(generator, "mxfp8")
        source = KeySource(pages=pages, slot_TL=self.lists(generator, 30, 33))
        q_TND = self.noise(generator, 30, self.heads, self.width, dtype=torch.bfloat16)
        sink_N = self.noise(generator, self.heads, dtype=torch.float32)
        first, _ = self.attend(component, q_TND, [source], sink_N)
        self.attend(component, -q_TND, [source], sink_N)
        assert_same_bits(self.attend(component, q_TND, [source], sink_N)[0], first)
