"""Do the bits of a row depend on its keys alone, and not on pages, batches or the call before?

Shapes: T rows, N heads, D width, L listed keys.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from deepinfer_core.interfaces.attention import KeySource, SparseAttention
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.attention_suite import ROWS_PER_PAGE, AttentionSuite
from deepinfer_core.testing.contracts.pages import make_pages
from deepinfer_core.testing.contracts.suite import assert_rows_stand_alone, dtype_of

__all__ = ["AttentionBitsContract"]


class AttentionBitsContract(AttentionSuite):
    """Tests of the promises that concern bits."""

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
