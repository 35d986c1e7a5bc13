"""Which inputs do the kernels get that score entries and choose among them?

Heads and widths are those of the model and of a small one. Numbers of visible entries lie around
the edges of pages and tiles; scores are often equal.

Shapes: T rows, H heads, J width, P pages, R rows of a page, S entries, Q sequences, B blocks.
"""

from __future__ import annotations

import torch

from deepinfer_core.interfaces.attention import IndexerSpec
from deepinfer_core.interfaces.operators.cache import (
    CandidateBlocksSpec,
    IndexScoresSpec,
    RowPagesSpec,
    SelectTopSpec,
)
from deepinfer_core.numeric import encode_parts, fake_quantise, number_format
from deepinfer_core.reference.cache_codec import read_rows
from deepinfer_core.reference.indexer import ReferenceIndexer
from deepinfer_core.testing.kernel_cases.cache import dense_pages, joined_pages
from deepinfer_core.testing.kernel_cases.case import KernelCase, Tensors, poisoned
from deepinfer_core.testing.tolerance import roundoff

__all__ = ["cases"]

_TWIN = ReferenceIndexer()
_SCALES = (20, 64, 127, 150, 200)
"""Bytes of scales far from the usual ones; sums of products stay within fp32."""


def cases() -> list[KernelCase]:
    """All cases of the family."""
    return [
        _scores(heads=32, width=128, size=64, visible=(150, 0, 64, 65, 70), name="model"),
        _scores(heads=32, width=128, size=128, visible=(300, 128, 129), name="large-pages"),
        _scores(heads=8, width=32, size=16, visible=(40, 1, 15, 16, 17, 39, 2), name="small"),
        _scores(heads=8, width=32, size=16, visible=(40, 33), name="scales", scales=_SCALES),
        _scores(heads=12, width=64, size=8, visible=(30, 9), name="odd-heads"),
        _scores(heads=8, width=32, size=16, visible=(40, 33, 20, 17, 3), name="alone", sequences=5),
        _scores(heads=8, width=32, size=16, visible=(20, 3), name="fp32", dtype="float32"),
        _scores(heads=8, width=32, size=16, visible=(20, 3), name="plain", form="bfloat16"),
        # More entries than a block has threads.
        _scores(heads=2, width=32, size=16, visible=(133,), name="fp32-long", dtype="float32"),
        _scores(heads=2, width=32, size=16, visible=(133,), name="plain-long", form="bfloat16"),
        _scores(
            heads=32,
            width=128,
            size=64,
            visible=tuple(range(3900, 4100, 3)),
            name="long",
            small=False,
        ),
        # Decode steps: one sequence with a long text, and eight rows of each of eight sequences.
        _scores(
            heads=32,
            width=128,
            size=64,
            visible=(65_536,),
            name="one-row",
            sequences=1,
            small=False,
        ),
        _scores(
            heads=32,
            width=128,
            size=64,
            visible=(16_384,) * 64,
            name="rows-64",
            sequences=8,
            small=False,
        ),
        _select(rows=6, entries=20, kept=9, levels=5),
        _select(rows=3, entries=700, kept=64, levels=3),
        _select(rows=3, entries=9000, kept=512, levels=0),
        _select(rows=2, entries=3, kept=16, levels=2),
        # More than a block reads, or writes, at once.
        _select(rows=2, entries=17_500, kept=1030, levels=0),
        # More of the best than a lane's part of the copy holds.
        _select(rows=2, entries=32_300, kept=512, levels=0, stride=64),
        _select(rows=5, entries=65_536, kept=512, levels=0, small=False),
        _select(rows=5, entries=65_536, kept=512, levels=2, small=False),
        _select(rows=64, entries=65_536, kept=512, levels=0, small=False),
        _restrict(rows=6, entries=19, size=4, kept=2, levels=5),
        _restrict(rows=4, entries=515, size=8, kept=20, levels=0),
        _restrict(rows=3, entries=2090, size=2, kept=300, levels=9, hidden=5, has_infinities=True),
        # More infinite scores than the pool has room for; more room than finite ones need.
        _restrict(rows=4, entries=400, size=4, kept=2, levels=3, has_infinities=True),
        _restrict(rows=3, entries=500, size=2, kept=300, levels=3, has_infinities=True),
        # The pool has blocks for one turn of all threads more than there are to hide.
        _restrict(rows=3, entries=1020, size=2, kept=300, levels=9, hidden=10),
        # The last visible entries have no score in the pool.
        _restrict(rows=4, entries=20, size=4, kept=2, levels=5, hidden=-2),
        # Too many blocks to remember their best scores.
        _restrict(rows=2, entries=16_900, size=1, kept=700, levels=3),
        _restrict(rows=3, entries=131_072, size=8, kept=2048, levels=0, small=False),
        _restrict(rows=2, entries=140_003, size=8, kept=2048, levels=4, small=False),
        _restrict(rows=64, entries=65_536, size=8, kept=2048, levels=0, small=False),
    ]


def _scores(
    *,
    heads: int,
    width: int,
    size: int,
    visible: tuple[int, ...],
    name: str,
    dtype: str = "bfloat16",
    form: str = "mxfp4",
    scales: tuple[int, ...] = (),
    sequences: int = 2,
    small: bool = True,
) -> KernelCase:
    rows, entries = len(visible), max(visible) + 3
    blocks = -(-entries // size)
    is_packed = form == "mxfp4"
    pages = dense_pages(form, width, size, 4 if is_packed else 0)
    is_tiled = is_packed and dtype == "bfloat16"
    compute = getattr(torch, dtype)
    sequence_T = torch.arange(rows) * sequences // rows

    def arguments(generator: torch.Generator) -> Tensors:
        x_PRJ = torch.randn(sequences * blocks + 1, size, width, generator=generator)
        data, scale = encode_parts(x_PRJ, form)
        if scales:
            chosen = torch.randint(0, len(scales), scale.shape, generator=generator)
            scale = torch.tensor(scales, dtype=torch.uint8)[chosen]
        query_THJ = torch.randn(rows, heads, width, generator=generator).to(compute)
        page_X = 1 + torch.randperm(sequences * blocks, generator=generator)
        table_QB = page_X.view(sequences, blocks)
        # Blocks that no row of a sequence sees need no page.
        reach_Q = torch.zeros(sequences, dtype=torch.int64)
        reach_Q.scatter_reduce_(0, sequence_T, torch.tensor(visible), "amax")
        table_QB[torch.arange(blocks) * size >= reach_Q[:, None]] = -1
        keys = {"data_PRX": data.view(torch.int32 if is_packed else compute)}
        return {
            "query_THJ": fake_quantise(query_THJ, "mxfp4"),
            "weight_TH": torch.randn(rows, heads, generator=generator).to(compute),
            **keys,
            **({"scale_PRG": scale} if is_packed else {}),
            "block_table_QB": table_QB,
            "sequence_T": sequence_T,
            "visible_T": torch.tensor(visible),
            "score_TS": poisoned(rows, entries, dtype=torch.float32),
        }

    def expect(given: Tensors) -> Tensors:
        spec = IndexerSpec(heads=heads, width=width, top_entries=1, block_entries=1, top_blocks=1)
        _TWIN.scores(
            _TWIN.plan_index(spec, rows),
            given["query_THJ"],
            given["weight_TH"],
            joined_pages(pages, given),
            given["block_table_QB"],
            given["sequence_T"],
            given["visible_T"],
            given["score_TS"],
        )
        return {"score_TS": given["score_TS"]}

    def bounds(given: Tensors, expected: Tensors) -> Tensors:
        # J products in each of H products: the twin is off by that many roundings of the sum of
        # magnitudes, a tensor core, which may cut off instead of rounding, by twice as many.
        share = 3 * (width + heads + 4) * roundoff(torch.float32)
        joined = joined_pages(pages, given)
        entry_S = torch.arange(entries)
        magnitude_TS = torch.zeros(rows, entries, dtype=torch.float64)
        for row in range(rows):
            page_S = given["block_table_QB"][given["sequence_T"][row], entry_S // size]
            key_SJ = read_rows(joined, page_S.clamp(min=0) * size + entry_S % size, torch.float64)
            dots_HS = given["query_THJ"][row].double().abs() @ key_SJ.abs().T
            magnitude_TS[row] = given["weight_TH"][row].double().abs() @ dots_HS
        return {"score_TS": share * magnitude_TS}

    return KernelCase(
        operator="attention_index_scores" if is_tiled else "attention_index_scores_wide",
        name=name,
        spec=IndexScoresSpec(heads=heads, pages=pages, dtype=dtype, weight_dtype=dtype),
        arguments=arguments,
        expect=expect,
        bounds=bounds,
        small=small,
        moved_bytes=0 if small else _moved_bytes(pages, sequences * entries, rows, heads, entries),
        flops=0 if small else 2 * rows * entries * heads * width,
    )


def _moved_bytes(pages: RowPagesSpec, keys: int, rows: int, heads: int, entries: int) -> int:
    """The keys of each sequence once, queries and weights in bf16, scores in fp32."""
    key_bytes = number_format(pages.number_format).row_bytes(pages.width)
    return keys * key_bytes + 2 * rows * heads * (pages.width + 1) + 4 * rows * entries


def _random_scores(
    rows: int, entries: int, levels: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of which a growing part is visible, with so many distinct values (0: any); and it."""
    if levels:
        score_TS = torch.randint(0, levels, (rows, entries), generator=generator) - levels // 2.0
        is_minus_TS = torch.rand(rows, entries, generator=generator) < 0.5
        score_TS = torch.where((score_TS == 0) & is_minus_TS, -0.0, score_TS)
    else:
        score_TS = torch.randn(rows, entries, generator=generator)
    visible_T = torch.arange(rows) * entries // max(rows - 1, 1)
    hidden_TS = torch.arange(entries) >= visible_T[:, None]
    return score_TS.masked_fill(hidden_TS, -torch.inf), visible_T


def _select(
    *, rows: int, entries: int, kept: int, levels: int, stride: int = 1, small: bool = True
) -> KernelCase:
    spec = IndexerSpec(heads=1, width=1, top_entries=kept, block_entries=1, top_blocks=1)

    def arguments(generator: torch.Generator) -> Tensors:
        score_TS, _ = _random_scores(rows, entries, levels, generator)
        # The best may all be met by the same thread.
        score_TS[:, 5 : 5 + kept * (stride - 1) : stride] += 100.0
        return {"score_TS": score_TS, "index_TL": poisoned(rows, kept, dtype=torch.int64)}

    def expect(given: Tensors) -> Tensors:
        _TWIN.select(_TWIN.plan_index(spec, rows), given["score_TS"], given["index_TL"])
        return {"index_TL": given["index_TL"]}

    return KernelCase(
        operator="attention_select_top",
        name=f"{kept}-of-{entries}-levels-{levels}-stride-{stride}"
        + ("" if small else f"-rows-{rows}"),
        spec=SelectTopSpec(top_entries=kept),
        arguments=arguments,
        expect=expect,
        small=small,
        moved_bytes=0 if small else rows * (4 * entries + 8 * kept),
        peer=None if small else ("torch.topk", lambda given: given["score_TS"].topk(kept)),
    )


def _restrict(
    *,
    rows: int,
    entries: int,
    size: int,
    kept: int,
    levels: int,
    hidden: int = 0,
    has_infinities: bool = False,
    small: bool = True,
) -> KernelCase:
    """``hidden``: entries of the pool beyond those that are scored; below 0, it ends before."""
    spec = IndexerSpec(heads=1, width=1, top_entries=1, block_entries=size, top_blocks=kept)

    def arguments(generator: torch.Generator) -> Tensors:
        pool_TS, visible_T = _random_scores(rows, entries + hidden, levels, generator)
        visible_T[-1] = max(entries, entries + hidden)
        if has_infinities:
            chosen_TS = torch.rand(pool_TS.shape, generator=generator)
            # Scores that differ in the last bit alone, and some that are no better than none.
            above_TS = pool_TS.nextafter(torch.tensor(torch.inf))
            pool_TS = torch.where(chosen_TS > 0.9, above_TS, pool_TS)
            pool_TS = pool_TS.masked_fill(chosen_TS < 0.5, -torch.inf)
            is_seen_TS = torch.arange(entries + hidden) < visible_T[:, None]
            pool_TS = pool_TS.masked_fill((chosen_TS > 0.98) & is_seen_TS, torch.inf)
        return {
            "pool_score_TS": pool_TS,
            "visible_T": visible_T,
            "score_TS": torch.randn(rows, entries, generator=generator),
        }

    def expect(given: Tensors) -> Tensors:
        _TWIN.restrict(
            _TWIN.plan_index(spec, rows),
            given["pool_score_TS"],
            given["visible_T"],
            given["score_TS"],
        )
        return {"score_TS": given["score_TS"]}

    return KernelCase(
        operator="attention_candidate_blocks",
        name=f"{kept}-of-{entries}-by-{size}-levels-{levels}" + "-infinities" * has_infinities,
        spec=CandidateBlocksSpec(block_entries=size, top_blocks=kept),
        arguments=arguments,
        expect=expect,
        small=small,
        moved_bytes=0 if small else 8 * rows * entries,
    )
