"""What do the suites of attention share: keys, lists, a guarded call and the exact result?

Shapes: T rows, N heads, D width, L listed keys, S slots.
"""

from __future__ import annotations

from typing import ClassVar

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
from deepinfer_core.testing.contracts.suite import ContractSuite, accumulation
from deepinfer_core.testing.oracles import attention as oracle
from deepinfer_core.testing.tolerance import assert_within, roundoff

__all__ = ["ROWS_PER_PAGE", "SLOTS", "AttentionSuite"]

PAGES, ROWS_PER_PAGE = 5, 8
SLOTS = PAGES * ROWS_PER_PAGE
SCALE = 0.11
"""No power of two, as that of 512 channels is not either: scaling in bf16 would show."""


class AttentionSuite(ContractSuite):
    """Widths, formats and calls.

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

    def source(
        self, generator: torch.Generator, slots: list[list[int]], number_format: str = "bfloat16"
    ) -> tuple[KeySource, torch.Tensor]:
        """One source with these lists, and its values."""
        pages, x_SD = self.keys(generator, number_format)
        slot_TL = torch.tensor(slots, dtype=torch.int64, device=self.device)
        return KeySource(pages=pages, slot_TL=slot_TL), x_SD
