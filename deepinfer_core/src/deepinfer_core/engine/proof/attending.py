"""Which trials show that caches, indexer and attention treat every row alike?

They run on scratch caches of the model's own layout, full of random rows. The codec stands first:
the others read what it wrote.

Shapes: N rows of a batch, P rows of the pool, H heads, J index width, W head width, L listed keys,
S entries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from deepinfer_core.engine.proof.samples import Samples, row_count
from deepinfer_core.engine.proof.trial import POOL_ROWS, Trial
from deepinfer_core.interfaces.attention import CachePages, KeySource
from deepinfer_core.model.backbone_layer import BackboneLayer
from deepinfer_core.model.selector import Selector
from deepinfer_core.model.sparse_attention import ListedAttention

__all__ = ["attention_trials", "codec_trials", "indexer_trials"]

_MOST_ROWS = 65
"""Rows of a batch here; each brings all of its keys along."""


def codec_trials(samples: Samples) -> Iterator[Trial]:
    """Store and load in each kind of pages, and the blending of pairs."""
    met: set[tuple[str, int, bool]] = set()
    for name, pages in _all_pages(samples):
        form = (pages.number_format, pages.width, pages.scales_apart)
        if form not in met:
            met.add(form)
            yield _round_trip(samples, name, pages)
    for layer in samples.model.layers:
        if layer.compressor is not None and layer.compressor.gate is not None:
            yield _pairs(samples, layer.plan.index)
            return


def _all_pages(samples: Samples) -> Iterator[tuple[str, CachePages]]:
    caches = samples.caches
    yield "window keys", caches.window(0)
    for layer in samples.model.layers:
        if layer.compressor is not None:
            yield "entries", caches.entries(layer.plan.index)
            if layer.compressor.index is not None:
                yield "index keys", caches.index_keys(layer.plan.index)


def _round_trip(samples: Samples, name: str, pages: CachePages) -> Trial:
    codec, last = samples.model.parts.codec, row_count(pages) - 1
    x_PD = samples.rows(pages.width, dtype=samples.model.rows.compute)

    def run(order: torch.Tensor) -> list[torch.Tensor]:
        slot_N = torch.arange(last, last - len(order), -1, device=samples.device)
        codec.store(x_PD[order], slot_N, pages)
        out_ND = torch.empty_like(x_PD[order])
        codec.load(pages, slot_N, out_ND)
        return [out_ND]

    return Trial(
        kind="attention",
        slot="cache_codec",
        operator=f"store and load of {name} ({pages.width} channels, {pages.number_format})",
        run=run,
        most_rows=last + 1,
    )


def _pairs(samples: Samples, layer: int) -> Trial:
    """A lone pair arrives in two calls, others in one; that is another split of a prompt."""
    codec, state = samples.model.parts.codec, samples.caches.compressor(layer)
    width, rows = state.width // 2, samples.model.rows
    value_PD, gate_PD = (samples.rows(2, width, dtype=rows.accumulate) for _ in range(2))

    def blend(
        value_TD: torch.Tensor, gate_TD: torch.Tensor, slots: list[list[int]]
    ) -> torch.Tensor:
        latent_TD = torch.empty_like(value_TD, dtype=rows.compute)
        slot_T, partner_slot_T, partner_row_T = torch.tensor(slots, device=samples.device)
        arguments = (slot_T, partner_slot_T, partner_row_T, state, latent_TD)
        codec.compress_pairs(value_TD, gate_TD, *arguments)
        return latent_TD

    def run(order: torch.Tensor) -> list[torch.Tensor]:
        value, gate = value_PD[order], gate_PD[order]
        if len(order) == 1:
            blend(value[:, 0], gate[:, 0], [[0], [1], [-1]])
            return [blend(value[:, 1], gate[:, 1], [[1], [0], [-1]])]
        partners = [[-1, 2 * pair][odd] for pair in range(len(order)) for odd in (0, 1)]
        nowhere, first = [-1] * len(partners), [0] * len(partners)
        latent = blend(value.flatten(0, 1), gate.flatten(0, 1), [nowhere, first, partners])
        return [latent[1::2]]

    return Trial(
        kind="attention",
        slot="cache_codec",
        operator=f"compress_pairs of {width} channels",
        run=run,
    )


def indexer_trials(samples: Samples) -> Iterator[Trial]:
    """Scores, their restriction and the choice among them; rows see unequally far."""
    found = (layer.selector for layer in samples.model.layers if layer.selector is not None)
    selector = next(found, None)
    if selector is None:
        return
    spec, rows = selector.spec, samples.model.rows
    keys = samples.fill(samples.caches.index_keys(selector.owner))
    capacity = 2 * keys.rows_per_page
    query_PHJ = samples.even_rows(POOL_ROWS, spec.heads, spec.width, dtype=rows.compute)
    query_PHJ = rows.round_trip(query_PHJ, selector.index_format)
    weight_PH = samples.rows(spec.heads, dtype=rows.compute)
    visible_P = torch.arange(POOL_ROWS, device=samples.device) * capacity // (POOL_ROWS - 1)
    table_QB = torch.tensor([[1, 2], [3, 1]], device=samples.device)
    pool_PS = samples.rows(capacity, dtype=rows.accumulate)

    def run(order: torch.Tensor) -> list[torch.Tensor]:
        plan, visible_N = selector.plan(len(order)), visible_P[order]
        # As in the model: as many columns as the row that sees the most.
        most = max(int(visible_N.max()), 1)
        score_NS = torch.empty((len(order), most), dtype=rows.accumulate, device=samples.device)
        arguments = (query_PHJ[order], weight_PH[order], keys, table_QB)
        sequence_N = (order % 2).to(samples.device)
        selector.indexer.scores(
            plan, *arguments, sequence_N, visible_N, score_NS, rows_each=len(order)
        )
        scored_NS = _padded(score_NS, capacity)
        hidden_NS = torch.arange(most, device=samples.device) >= visible_N[:, None]
        pool_NS = pool_PS[order, :most].masked_fill(hidden_NS, -math.inf)
        chosen = [_selected(selector, score_NS)]
        selector.indexer.restrict(plan, pool_NS, visible_N, score_NS)
        chosen.append(_selected(selector, score_NS))
        return [scored_NS, _padded(score_NS, capacity), *chosen]

    yield Trial(
        kind="attention",
        slot="indexer",
        operator=f"scores, restrict and select of {spec.heads} x {spec.width} channels",
        run=run,
        most_rows=_MOST_ROWS,
        plan=selector.plan,
    )


def _padded(score_NS: torch.Tensor, capacity: int) -> torch.Tensor:
    missing = capacity - score_NS.shape[1]
    return torch.nn.functional.pad(score_NS, (0, missing), value=-math.inf)


def _selected(selector: Selector, score_NS: torch.Tensor) -> torch.Tensor:
    shape = (score_NS.shape[0], selector.spec.top_entries)
    index_NL = torch.empty(shape, dtype=torch.int64, device=score_NS.device)
    selector.indexer.select(selector.plan(shape[0]), score_NS, index_NL)
    return index_NL


def attention_trials(samples: Samples) -> Iterator[Trial]:
    """Each slot on a window alone, and on a window with entries; the drafter's block as well."""
    model, caches = samples.model, samples.caches
    window = model.config.text_config.sliding_window
    attention = model.layers[0].attention
    sink_N = model.layers[0].projections.sink_N
    rings, chunk = samples.fill(caches.window(0)), _workspace(samples)
    plain = [_source(samples, pages, window) for pages in (rings, chunk)]
    lists = [("a window", [source]) for source in plain]
    if (entries := _entries(samples, model.layers)) is not None:
        lists += [("a window and entries", [source, entries]) for source in plain]
    for number, (what, sources) in enumerate(lists):
        if number % 2 == 0:
            yield _attend(samples, "decode", what, attention.decode, sources, sink_N)
        else:
            yield _attend(samples, "prefill", what, attention.prefill, sources, sink_N)
    if (drafter := model.drafter) is not None:
        keys = samples.fill(caches.drafter(0))
        block = _source(samples, keys, window + drafter.block_tokens)
        sink_N = drafter.layers[0].projections.sink_N
        yield _attend(samples, "decode", "a block of drafts", drafter.attention, [block], sink_N)


def _attend(
    samples: Samples,
    slot: str,
    what: str,
    attention: ListedAttention,
    sources: Sequence[KeySource],
    sink_N: torch.Tensor,
) -> Trial:
    heads, width = samples.model.layers[0].projections.heads, sources[0].pages.width
    q_PNW = samples.even_rows(POOL_ROWS, heads, width, dtype=samples.model.rows.compute)

    def run(order: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        listed = [KeySource(pages=one.pages, slot_TL=one.slot_TL[order]) for one in sources]
        return attention.run(q_PNW[order], listed, sink_N)

    return Trial(
        kind="attention",
        slot=slot,
        operator=f"attention of {heads} heads over {what}",
        run=run,
        most_rows=_MOST_ROWS,
        plan=lambda rows: attention.plan(sources, rows),
    )


def _source(samples: Samples, pages: CachePages, length: int) -> KeySource:
    return KeySource(pages=pages, slot_TL=samples.slots(pages, length))


def _entries(samples: Samples, layers: Sequence[BackboneLayer]) -> KeySource | None:
    for layer in layers:
        if layer.plan.kv_source is not None:
            pages = samples.fill(samples.caches.entries(layer.plan.kv_source))
            return _source(samples, pages, samples.model.config.text_config.index_topk)
    return None


def _workspace(samples: Samples) -> CachePages:
    """Keys of a chunk: one page in the compute dtype, as the model makes them for prefill."""
    width = samples.model.config.text_config.head_dim
    window = samples.model.config.text_config.sliding_window
    keys_RW = samples.even_rows(2 * window, width, dtype=samples.model.rows.compute)
    return CachePages(
        data_PB=keys_RW.view(torch.uint8).view(1, -1),
        rows_per_page=keys_RW.shape[0],
        width=width,
        number_format=samples.model.parts.numerics.compute,
    )
