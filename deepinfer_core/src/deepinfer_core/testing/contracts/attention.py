"""Does a row attend to the keys it lists, to all of them, and to nothing else?

Shapes: T rows, N heads, D width, L listed keys.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from deepinfer_core.interfaces.attention import KeySource, SparseAttention
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.attention_bits import AttentionBitsContract
from deepinfer_core.testing.contracts.attention_suite import ROWS_PER_PAGE, SLOTS, AttentionSuite
from deepinfer_core.testing.contracts.suite import dtype_of

__all__ = ["AttentionContract"]


class AttentionValueContract(AttentionSuite):
    """Tests of the values."""

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

    @pytest.mark.parametrize("empty", [0, 1])
    def test_a_row_may_have_keys_in_one_source_only(
        self, component: SparseAttention, compute: str, empty: int, generator: torch.Generator
    ) -> None:
        """Entries without a window, as at the start of a truncated window, and the reverse."""
        lists = [[[3, 4], [5, 6]], [[7, -1, 8], [9, 10, 11]]]
        lists[empty][0] = [-1] * len(lists[empty][0])
        pairs = [self.source(generator, slots) for slots in lists]
        q_TND = self.noise(generator, 2, self.heads, self.width, dtype=dtype_of(compute))
        sink_N = self.noise(generator, self.heads, dtype=torch.float32)
        sources, values = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        self.check_against_oracle(component, q_TND, sources, values, sink_N)

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


class AttentionContract(AttentionValueContract, AttentionBitsContract):
    """All tests of ``SparseAttention``."""
