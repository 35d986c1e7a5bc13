"""Does the indexer score what is visible, and keep the best of it?

Shapes: T rows, H heads, J width, S entries, Q sequences, B blocks.
"""

from __future__ import annotations

import math
from typing import ClassVar

import pytest
import torch

from deepinfer_core.interfaces.attention import CachePages, Indexer, IndexerSpec
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

__all__ = ["IndexerContract"]

ENTRIES_PER_PAGE, BLOCKS = 8, 6
ENTRIES = ENTRIES_PER_PAGE * BLOCKS


class IndexerContract(ContractSuite):
    """Tests of ``Indexer``.

    Attributes:
        index_formats: formats of index keys.
        heads: H.
        width: J.
    """

    index_formats: ClassVar[tuple[str, ...]] = ("mxfp4", "bfloat16", "float64")
    heads: ClassVar[int] = 8
    width: ClassVar[int] = 32
    sweeps: ClassVar[dict[str, str]] = {**ContractSuite.sweeps, "index_format": "index_formats"}

    def spec(self, *, top_entries: int = 6, block: int = 4, top_blocks: int = 3) -> IndexerSpec:
        """Small numbers, so that choices matter."""
        return IndexerSpec(
            heads=self.heads,
            width=self.width,
            top_entries=top_entries,
            block_entries=block,
            top_blocks=top_blocks,
        )

    def keys(
        self, generator: torch.Generator, index_format: str, sequences: int
    ) -> tuple[CachePages, torch.Tensor, torch.Tensor]:
        """Pages, block tables in random order, and the fp64 keys [Q, S, J]; page 0 is nobody's."""
        count = sequences * BLOCKS
        pages = make_pages(
            self.device,
            index_format,
            self.width,
            pages=count + 1,
            rows_per_page=ENTRIES_PER_PAGE,
            scales_apart=True,
        )
        table_QB = 1 + torch.randperm(count, generator=generator).view(sequences, BLOCKS)
        x = torch.randn(sequences, ENTRIES, self.width, generator=generator, dtype=torch.float64)
        data, scale = (part.flatten(1).view(count, -1) for part in _parts(x, index_format))
        place = table_QB.flatten().to(self.device)
        end = data.shape[1] + scale.shape[1]
        pages.data_PB[place, : data.shape[1]] = data.to(self.device)
        pages.data_PB[place, data.shape[1] : end] = scale.to(self.device)
        return pages, table_QB.to(self.device), fake_quantise(x, index_format)

    def score(
        self,
        component: Indexer,
        query_THJ: torch.Tensor,
        weight_TH: torch.Tensor,
        keys: CachePages,
        table_QB: torch.Tensor,
        sequence_T: torch.Tensor,
        visible_T: torch.Tensor,
        entries: int = ENTRIES,
        rows_each: int | None = None,
    ) -> torch.Tensor:
        """Run into a guarded buffer."""
        rows = len(query_THJ)
        out = self.buffer(rows, entries, dtype=accumulation(query_THJ.dtype))
        plan = component.plan_index(self.spec(), max(rows, 1))
        component.scores(
            plan,
            query_THJ,
            weight_TH,
            keys,
            table_QB,
            sequence_T.to(self.device),
            visible_T.to(self.device),
            out.tensor,
            rows_each=rows_each or max(rows // len(table_QB), 1),
        )
        return out.check()

    def test_scores_match_fp64_and_hide_what_is_not_visible(
        self, component: Indexer, index_format: str, compute: str, generator: torch.Generator
    ) -> None:
        """Every number of visible entries around the edges of pages, over three sequences."""
        visible = [0, 1, 7, 8, 9, 15, 16, 17, ENTRIES - 1, ENTRIES]
        visible_T, sequence_T = torch.tensor(visible * 3), torch.arange(3).repeat_interleave(10)
        keys, table_QB, x_QSJ = self.keys(generator, index_format, 3)
        dtype = dtype_of(compute)
        query_THJ = self.noise(generator, 30, self.heads, self.width, dtype=dtype)
        weight_TH = self.noise(generator, 30, self.heads, dtype=dtype)
        got = self.score(component, query_THJ, weight_TH, keys, table_QB, sequence_T, visible_T)
        u = roundoff(accumulation(dtype))
        for row, seen in enumerate(visible_T.tolist()):
            key_SJ = x_QSJ[int(sequence_T[row])][:seen]
            query_HJ, weight_H = query_THJ[row].cpu(), weight_TH[row].cpu()
            want = oracle.index_scores(query_HJ, weight_H, key_SJ)
            size = oracle.index_scores(query_HJ.abs(), weight_H.abs(), key_SJ.abs())
            # J products in each of H products.
            assert_within(got[row, :seen], want, (self.width + self.heads + 4) * u * size)
            assert bool((got[row, seen:] == -math.inf).all())

    @pytest.mark.parametrize("rows_each", [1, 2, 3, 4, 6, 7, 50])
    def test_what_a_sequence_is_said_to_feed_changes_no_bit(
        self,
        component: Indexer,
        index_format: str,
        compute: str,
        generator: torch.Generator,
        rows_each: int,
    ) -> None:
        """Sequences of 1, 2, 6 and 3 rows, and two rows of the same entry at the end."""
        sequence_T = torch.tensor([0, 1, 1, *[2] * 6, *[0] * 3, 3, 3])
        visible_T = torch.tensor([9, 1, 2, *range(7, 13), 3, 4, 5, 1, 1])
        keys, table_QB, _ = self.keys(generator, index_format, 4)
        query_THJ = self.noise(generator, 14, self.heads, self.width, dtype=dtype_of(compute))
        weight_TH = self.noise(generator, 14, self.heads, dtype=dtype_of(compute))
        arguments = (query_THJ, weight_TH, keys, table_QB, sequence_T, visible_T)
        want = self.score(component, *arguments, rows_each=5)
        assert_same_bits(self.score(component, *arguments, rows_each=rows_each), want)

    def test_no_rows_and_no_entries_are_fine(
        self, component: Indexer, compute: str, generator: torch.Generator
    ) -> None:
        """An empty step, and a step before the first entry exists."""
        keys, table_QB, _ = self.keys(generator, "bfloat16", 1)
        dtype = dtype_of(compute)
        for rows, entries in ((0, 5), (3, 0)):
            query_THJ = self.noise(generator, rows, self.heads, self.width, dtype=dtype)
            weight_TH = self.noise(generator, rows, self.heads, dtype=dtype)
            zeros_T = torch.zeros(rows, dtype=torch.int64)
            score_TS = self.score(
                component, query_THJ, weight_TH, keys, table_QB, zeros_T, zeros_T, entries
            )
            component.restrict(
                component.plan_index(self.spec(), 3), score_TS, zeros_T.to(self.device), score_TS
            )
            assert self.chosen(component, score_TS, self.spec()) == [[-1] * 6] * rows

    def test_entries_beyond_the_visible_ones_are_never_read(
        self, component: Indexer, compute: str, generator: torch.Generator
    ) -> None:
        """They hold NaN, and their blocks are not even in the table."""
        keys, table_QB, _ = self.keys(generator, "bfloat16", 1)
        dtype = dtype_of(compute)
        query_THJ = self.noise(generator, 2, self.heads, self.width, dtype=dtype)
        weight_TH = self.noise(generator, 2, self.heads, dtype=dtype)
        sequence_T, visible_T = torch.zeros(2, dtype=torch.int64), torch.tensor([3, 11])
        want = self.score(component, query_THJ, weight_TH, keys, table_QB, sequence_T, visible_T)
        for block in range(2, BLOCKS):
            keys.data_PB[int(table_QB[0, block])] = 0xFF
        table_QB[0, 2:] = -1
        got = self.score(component, query_THJ, weight_TH, keys, table_QB, sequence_T, visible_T)
        assert_same_bits(got, want)

    def test_a_score_depends_neither_on_its_batch_nor_on_the_reach_of_others(
        self, component: Indexer, index_format: str, compute: str, generator: torch.Generator
    ) -> None:
        """Forty rows of two sequences that see between 0 and all entries."""
        self.require(component.properties.batch_invariant, "batch invariance")
        keys, table_QB, _ = self.keys(generator, index_format, 2)
        dtype = dtype_of(compute)
        query_THJ = self.noise(generator, 40, self.heads, self.width, dtype=dtype)
        weight_TH = self.noise(generator, 40, self.heads, dtype=dtype)
        visible_T = torch.arange(40) * ENTRIES // 39
        sequence_T = torch.arange(40) // 20

        def run(rows: torch.Tensor) -> list[torch.Tensor]:
            there = rows.to(self.device)
            arguments = (query_THJ[there], weight_TH[there], keys, table_QB)
            return [self.score(component, *arguments, sequence_T[rows], visible_T[rows])]

        assert_rows_stand_alone(run, 40, generator)

    def chosen(
        self, component: Indexer, score_TS: torch.Tensor, spec: IndexerSpec
    ) -> list[list[int]]:
        """The selected entries of every row."""
        out = self.buffer(len(score_TS), spec.top_entries, dtype=torch.int64)
        before = score_TS.clone()
        component.select(component.plan_index(spec, max(len(score_TS), 1)), score_TS, out.tensor)
        assert_same_bits(score_TS, before)
        return [list(map(int, row)) for row in out.check().tolist()]

    @pytest.mark.parametrize("top_entries", [1, 9, 10, 11, 20, 64])
    def test_the_best_entries_are_selected_in_ascending_order(
        self, component: Indexer, top_entries: int, compute: str, generator: torch.Generator
    ) -> None:
        """Few distinct scores, so that ties abound; 0 to 20 of 20 entries are visible."""
        dtype = accumulation(dtype_of(compute))
        score_TS = torch.randint(-2, 3, (21, 20), generator=generator).to(dtype)
        score_TS.masked_fill_(torch.arange(20) >= torch.arange(21)[:, None], -math.inf)
        spec = self.spec(top_entries=top_entries)
        got = self.chosen(component, score_TS.to(self.device), spec)
        for row, scores in zip(got, score_TS.tolist(), strict=True):
            want = oracle.top_entries(scores, top_entries)
            assert row == want + [-1] * (top_entries - len(want))

    def test_hidden_entries_between_visible_ones_are_never_selected(
        self, component: Indexer
    ) -> None:
        """A candidate pool hides blocks in the middle."""
        score_TS = torch.full((1, 12), -math.inf, device=self.device)
        score_TS[0, [1, 5, 10]] = torch.tensor([-3.0, 0.0, -1e30], device=self.device)
        assert self.chosen(component, score_TS, self.spec(top_entries=4)) == [[1, 5, 10, -1]]

    @pytest.mark.parametrize("top_blocks", [1, 2, 3, 5, 6])
    def test_only_the_candidate_pool_keeps_its_scores(
        self, component: Indexer, top_blocks: int, compute: str, generator: torch.Generator
    ) -> None:
        """Blocks of four, ties abound, and 0 to 19 of 19 entries are visible."""
        dtype = accumulation(dtype_of(compute))
        visible_T = torch.arange(20)
        hidden_TS = torch.arange(19) >= visible_T[:, None]
        pool_TS = torch.randint(-2, 3, (20, 19), generator=generator).to(dtype)
        pool_TS.masked_fill_(hidden_TS, -math.inf)
        score_TS = torch.randn(20, 19, generator=generator, dtype=dtype)
        score_TS.masked_fill_(hidden_TS, -math.inf)
        out = self.buffer(20, 19, dtype=dtype)
        out.tensor.copy_(score_TS)
        plan = component.plan_index(self.spec(top_blocks=top_blocks), 20)
        component.restrict(plan, pool_TS.to(self.device), visible_T.to(self.device), out.tensor)
        for row in range(20):
            kept = oracle.pool_blocks(pool_TS[row].tolist(), row, 4, top_blocks)
            is_outside_S = torch.tensor([entry // 4 not in kept for entry in range(19)])
            want_S = score_TS[row].masked_fill(is_outside_S, -math.inf)
            assert_same_bits(out.check()[row].cpu(), want_S)

    def test_the_block_of_the_last_visible_entry_is_always_a_candidate(
        self, component: Indexer
    ) -> None:
        """Even where it scores worst, and where another block's score is infinite."""
        pool_TS = torch.tensor([[9.0, 9, 9, 9, math.inf, 1, 1, 1, -5, -5]], device=self.device)
        score_TS = torch.ones(1, 10, device=self.device)
        plan = component.plan_index(self.spec(top_blocks=1), 1)
        component.restrict(plan, pool_TS, torch.tensor([10], device=self.device), score_TS)
        assert (score_TS[0] == 1).tolist() == [False] * 8 + [True] * 2


def _parts(x_QSJ: torch.Tensor, index_format: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes of data and of scales, one row for each page of entries."""
    data, scale = encode_parts(x_QSJ, index_format)
    pages = x_QSJ.shape[0] * BLOCKS
    return data.reshape(pages, -1), scale.reshape(pages, -1)
