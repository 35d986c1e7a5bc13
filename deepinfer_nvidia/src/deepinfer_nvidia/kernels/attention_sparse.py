"""Sparse attention of rows over listed keys. Twin: ``deepinfer_core.reference.sparse_attention``.

One block for a row and up to 64 heads. It first moves the present slots of each list together, in
order; so absent entries cost nothing, need no mask and change no bit. Keys are then taken in tiles
of a fixed number, source after source: gathered 16 bytes at a time, widened to the dtype of the
products, multiplied, and added to the blend of an online softmax. The last tile of a source is
filled up with its last key, weighing zero. A row's bits depend on its query and on the present
keys of each source in order.

Weights of the softmax are rounded to bf16 for the second product, their sum is not. Where queries
or keys are not exact in bf16, both products are sums of fp32 products.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import tilelang.language as T
from deepinfer_core.interfaces.operators.attention import SparseAttentionSpec
from deepinfer_core.interfaces.operators.catalogue import KernelLimits

from deepinfer_nvidia.kernels.compiler_switches import NO_BOUNDS_CHECKS
from deepinfer_nvidia.kernels.key_rows import gatherer, key_rows, lister, widener
from deepinfer_nvidia.kernels.key_sources import with_sources
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["LIMITS", "Tuning", "build"]

LIMITS = KernelLimits(spilled_bytes=12)
"""With FP4 keys of 512 channels: blend, scores and the next tile fill all 255 registers."""

_LOG2_E = 1.4426950408889634
_LN_2 = 0.6931471805599453
_LOWEST = -3.4028234663852886e38

_WIDE_KEYS = 16
"""Keys in a tile of fp32 products."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """Tiles.

    Attributes:
        keys: keys in a tile, a multiple of 16.
        stages: tiles of unscaled formats in flight; 0 keeps the next tile in registers, as it
            always is in scaled formats.
    """

    threads: int = 256
    pass_configs: tuple[tuple[str, bool | int | str], ...] = NO_BOUNDS_CHECKS
    keys: int = 64
    stages: int = 2


class _State(NamedTuple):
    """What a block keeps over all tiles, and what it works in."""

    q_s: Any
    blend: Any
    largest: Any
    total: Any
    score: Any
    before: Any
    part: Any
    weight_s: Any
    slot_s: Any
    place_s: Any
    spot_s: Any


def build(spec: SparseAttentionSpec, tuning: Tuning) -> Any:
    """Attention over one or two sources."""
    rows = T.dynamic("rows")
    return with_sources(spec, rows, _attention(spec, tuning, rows))


def _attention(spec: SparseAttentionSpec, tuning: Tuning, rows: Any) -> Any:
    """The whole of it, for a list of sources."""
    is_wide = spec.compute == "float32" or any(s.number_format == "float32" for s in spec.sources)
    product = "float32" if is_wide else "bfloat16"
    heads, width = spec.heads, spec.head_width
    tile_heads = 16 if is_wide else min(64, max(16, 1 << (heads - 1).bit_length()))
    keys = _WIDE_KEYS if is_wide else tuning.keys
    longest = max(source.list_capacity for source in spec.sources)
    over_sources = [
        _over_source(spec, number, tuning.stages, product, keys)
        for number in range(len(spec.sources))
    ]
    finish = _finish(tile_heads, spec)
    attend_tile = _over_tile(tile_heads, keys, width, product, spec.scale * _LOG2_E)

    @T.macro
    def attend(
        q_TND: T.Buffer, sources: Any, sink_N: T.Buffer, out_TND: T.Buffer, lse_TN: T.Buffer
    ) -> None:
        with T.Kernel(rows, T.ceildiv(heads, tile_heads), threads=tuning.threads) as (row, across):
            state = _State(
                q_s=T.alloc_shared((tile_heads, width), product),
                blend=T.alloc_fragment((tile_heads, width), "float32"),
                largest=T.alloc_fragment((tile_heads,), "float32"),
                total=T.alloc_fragment((tile_heads,), "float32"),
                score=T.alloc_fragment((tile_heads, keys), "float32"),
                before=T.alloc_fragment((tile_heads,), "float32"),
                part=T.alloc_fragment((tile_heads,), "float32"),
                weight_s=T.alloc_shared((tile_heads, keys), product),
                slot_s=T.alloc_shared((longest,), "int32"),
                place_s=T.alloc_shared((longest,), "int32"),
                spot_s=T.alloc_shared((longest,), "int64"),
            )
            first = across * tile_heads
            for h, d in T.Parallel(tile_heads, width):
                state.q_s[h, d] = T.if_then_else(
                    first + h < heads, T.cast(q_TND[row, first + h, d], product), 0
                )
            T.clear(state.blend)
            T.clear(state.total)
            T.fill(state.largest, _LOWEST)
            for over_source, source in zip(over_sources, sources, strict=True):
                over_source(row, *source, state, attend_tile)
            finish(row, first, state.blend, state.largest, state.total, sink_N, out_TND, lse_TN)

    return attend


def _finish(tile_heads: int, spec: SparseAttentionSpec) -> Any:
    """Close the softmax with the sink, divide, and write."""

    @T.macro
    def finish(
        row: Any,
        first: Any,
        blend: T.Buffer,
        largest: T.Buffer,
        total: T.Buffer,
        sink_N: T.Buffer,
        out_TND: T.Buffer,
        lse_TN: T.Buffer,
    ) -> None:
        for h in T.Parallel(tile_heads):
            if first + h < spec.heads:
                lse_TN[row, first + h] = T.if_then_else(
                    total[h] == 0, T.infinity("float32"), largest[h] * _LN_2 + T.log(total[h])
                )
                total[h] = T.if_then_else(
                    total[h] == 0,
                    1,
                    total[h] + T.exp2(sink_N[first + h] * _LOG2_E - largest[h]),
                )
        for h, d in T.Parallel(tile_heads, spec.head_width):
            if first + h < spec.heads:
                out_TND[row, first + h, d] = T.cast(blend[h, d] / total[h], spec.compute)

    return finish


def _over_source(
    spec: SparseAttentionSpec, number: int, stages: int, product: str, keys: int
) -> Any:
    """All tiles of one source."""
    source, width = spec.sources[number], spec.head_width
    rows = key_rows(source.number_format, width)
    list_keys, gather = lister(source), gatherer(keys)
    widen = widener(source, width, keys, product)
    groups = width // rows.group if rows.group else 0

    @T.macro
    def take(tile: Any, count: Any, state: Any, source_PE: Any, raw: T.Buffer, scale: Any) -> None:
        gather(tile, count, state.spot_s, source_PE[0], 0, rows.stride, raw)
        if groups:
            gather(
                tile,
                count,
                state.spot_s,
                source_PE[1],
                rows.elements,
                rows.stride,
                scale,
            )

    @T.macro
    def over_source(
        row: Any,
        data_PE: T.Buffer,
        scale_PB: T.Buffer,
        slot_TL: T.Buffer,
        state: Any,
        attend_tile: Any,
    ) -> None:
        T.assume(data_PE.strides[0] % rows.alignment == 0)
        T.assume(scale_PB.strides[0] % rows.alignment == 0)
        key_s = T.alloc_shared((keys, width), product)
        count = T.alloc_var("int32")
        list_keys(row, slot_TL, state.slot_s, state.place_s, state.spot_s)
        count = state.place_s[source.list_capacity - 1]
        if groups or stages == 0:
            raw = T.alloc_fragment((keys, rows.elements), rows.element)
            raw_scale = T.alloc_fragment((keys, max(groups, 1)), "uint8")
            scale_s = T.alloc_shared((keys, max(groups, 1)), "float32")
            if count > 0:
                take(0, count, state, (data_PE, scale_PB), raw, raw_scale)
            for tile in T.serial(T.ceildiv(count, keys)):
                widen(raw, raw_scale, scale_s, key_s)
                take(tile + 1, count, state, (data_PE, scale_PB), raw, raw_scale)
                attend_tile(tile, count, key_s, state)
        else:
            for tile in T.Pipelined(T.ceildiv(count, keys), num_stages=stages):
                gather(tile, count, state.spot_s, data_PE, 0, rows.stride, key_s)
                attend_tile(tile, count, key_s, state)

    return over_source


def _over_tile(heads: int, keys: int, width: int, product: str, factor: float) -> Any:
    """Score a tile of keys, weigh them, and add them to the blend."""
    is_wide = product == "float32"

    @T.macro
    def attend_tile(tile: Any, count: Any, key_s: T.Buffer, state: Any) -> None:
        T.clear(state.score)
        if is_wide:
            for d in T.serial(width):
                for h, k in T.Parallel(heads, keys):
                    state.score[h, k] += state.q_s[h, d] * key_s[k, d]
        else:
            T.gemm(state.q_s, key_s, state.score, transpose_B=True)
        for h, k in T.Parallel(heads, keys):
            state.score[h, k] = T.if_then_else(
                tile * keys + k < count, state.score[h, k] * factor, -T.infinity("float32")
            )
        T.copy(state.largest, state.before)
        T.reduce_max(state.score, state.largest, dim=1, clear=False)
        for h in T.Parallel(heads):
            state.before[h] = T.exp2(state.before[h] - state.largest[h])
        for h, k in T.Parallel(heads, keys):
            state.score[h, k] = T.exp2(state.score[h, k] - state.largest[h])
        T.reduce_sum(state.score, state.part, dim=1)
        for h in T.Parallel(heads):
            state.total[h] = state.total[h] * state.before[h] + state.part[h]
        T.copy(state.score, state.weight_s)
        for h, d in T.Parallel(heads, width):
            state.blend[h, d] *= state.before[h]
        if is_wide:
            for k in T.serial(keys):
                for h, d in T.Parallel(heads, width):
                    state.blend[h, d] += state.weight_s[h, k] * key_s[k, d]
        else:
            T.gemm(state.weight_s, key_s, state.blend)

    return attend_tile
