"""What does each operator of a step move and compute at least?

Counted from the configuration, without torch. An operator reads its weights and its inputs once and
writes its outputs once; what is fused by nature is one operator (norms, rotations and roundings
belong to the product beside them, the activation to the first product of the experts), and so is
what depends on the same inputs only and could run side by side. Operators of one list follow from
each other: none can begin before the one before it ends. New rows of the caches, routing tables and
whatever an implementation keeps in between are left out: these are lower bounds.

Shapes: T rows, D hidden width, S streams, I expert width.
"""

from __future__ import annotations

from deepinfer_core.bench.layers.work import Load, Operator, Storage
from deepinfer_core.model.config import TextConfig
from deepinfer_core.model.layer_plan import LayerPlan

__all__ = ["layer_operators", "outer_operators"]

_WIDE_BYTES = 4
"""Of logits and of the weights of hyper-connections, which are fp32."""


def layer_operators(
    text: TextConfig, plan: LayerPlan, load: Load, storage: Storage
) -> list[Operator]:
    """The operators of one layer, one after the other."""
    return [
        *(_engram(text, load, storage) if plan.has_engram else []),
        _streams_in("attention", text, load, storage),
        *_attention(text, plan, load, storage),
        _streams_out("attention", text, load, storage),
        _streams_in("experts", text, load, storage),
        *_experts(text, plan, load, storage),
        _streams_out("experts", text, load, storage),
    ]


def outer_operators(text: TextConfig, load: Load, storage: Storage) -> list[Operator]:
    """What surrounds the layers: embedding, head, drawing."""
    trunk = load.all_rows * text.hc_mult * text.hidden_size * storage.activation
    drawn = load.sequences * load.drawn
    logits = drawn * text.vocab_size * _WIDE_BYTES
    values = text.vocab_size * text.hidden_size
    return [
        Operator(name="embedding", moved_bytes=trunk),
        Operator(
            name="head",
            moved_bytes=values * storage.plain * bool(drawn)
            + drawn * text.hc_mult * text.hidden_size * storage.activation
            + logits,
            flops=2 * drawn * values,
        ),
        Operator(name="sampler", moved_bytes=logits),
    ]


def _product(
    name: str,
    load: Load,
    storage: Storage,
    *,
    reads: int,
    writes: int,
    weights: tuple[tuple[int, float], ...],
) -> Operator:
    """Products of all rows with weights.

    Args:
        name: of the operator.
        load: the rows.
        storage: bytes of an activation.
        reads: values of a row that are read.
        writes: values of a row that are written.
        weights: values and bytes of a value of each.
    """
    rows = load.all_rows
    return Operator(
        name=name,
        moved_bytes=sum(count * size for count, size in weights)
        + rows * (reads + writes) * storage.activation,
        flops=2 * rows * sum(count for count, _ in weights),
    )


def _engram(text: TextConfig, load: Load, storage: Storage) -> list[Operator]:
    """The looked-up rows come over the bus while other layers run; see ``bound``."""
    width, hidden = text.engram_columns * text.engram_head_dim, text.hidden_size
    projected = (text.hc_mult + 1) * hidden
    trunk = load.all_rows * text.hc_mult * hidden * storage.activation
    return [
        _product(
            "engram.project",
            load,
            storage,
            reads=width,
            writes=projected,
            weights=((width * projected, storage.dense),),
        ),
        Operator(
            name="engram.gate",
            moved_bytes=2 * trunk + load.all_rows * projected * storage.activation,
        ),
    ]


def _streams_in(part: str, text: TextConfig, load: Load, storage: Storage) -> Operator:
    """Mixes and the sublayer's normed input, in one pass over the streams."""
    width = text.hc_mult * text.hidden_size
    mixes = text.hc_mult * (text.hc_mult + 2)
    return _product(
        f"{part}.streams_in",
        load,
        storage,
        reads=width,
        writes=text.hidden_size,
        weights=((mixes * width, float(_WIDE_BYTES)),),
    )


def _streams_out(part: str, text: TextConfig, load: Load, storage: Storage) -> Operator:
    """The sublayer's output spread over the streams, which are mixed in place."""
    width = text.hc_mult * text.hidden_size
    moved = load.all_rows * (2 * width + text.hidden_size) * storage.activation
    return Operator(name=f"{part}.streams_out", moved_bytes=moved)


def _attention(text: TextConfig, plan: LayerPlan, load: Load, storage: Storage) -> list[Operator]:
    hidden, latent, head = text.hidden_size, text.q_lora_rank, text.head_dim
    queries, ranks = text.num_attention_heads * head, text.o_groups * text.o_lora_rank
    index = text.index_n_heads * text.index_head_dim * plan.has_indexer
    made = head * (plan.has_compressor + plan.has_compressor_gate)
    weighted = text.index_n_heads * plan.has_indexer
    index_key = text.index_head_dim * plan.has_index_keys
    dense, plain = storage.dense, storage.plain
    down = _product(
        "attention.down",
        load,
        storage,
        reads=hidden,
        writes=latent + head + made + weighted,
        weights=((hidden * (latent + head), dense), (hidden * (made + weighted), plain)),
    )
    up = _product(
        "attention.up",
        load,
        storage,
        reads=latent + head * plan.has_index_keys,
        writes=queries + index + index_key,
        weights=((latent * (queries + index), dense), (head * index_key, plain)),
    )
    group_out = _product(
        "attention.group_out",
        load,
        storage,
        reads=queries,
        writes=ranks,
        weights=((queries * text.o_lora_rank, dense),),
    )
    out = _product(
        "attention.out",
        load,
        storage,
        reads=ranks,
        writes=hidden,
        weights=((ranks * hidden, dense),),
    )
    scores = [_index(text, plan, load, storage)] if plan.has_indexer else []
    return [down, up, *scores, _keys(text, plan, load, storage), group_out, out]


def _index(text: TextConfig, plan: LayerPlan, load: Load, storage: Storage) -> Operator:
    """Scores of all visible entries, or of those in the candidate pool."""
    most = text.candidate_topk_blocks * text.candidate_block_size if plan.uses_pool else load.end
    width = text.index_n_heads * text.index_head_dim
    distinct = min(load.end // plan.ratio, load.rows * most)
    return Operator(
        name="attention.index",
        moved_bytes=load.sequences * distinct * storage.index_row
        + load.all_rows * width * storage.activation,
        flops=2 * load.sequences * load.seen(plan.ratio, most) * width,
    )


def _keys(text: TextConfig, plan: LayerPlan, load: Load, storage: Storage) -> Operator:
    """Attention over window and selected entries; rows of one sequence share its window."""
    queries = text.num_attention_heads * text.head_dim
    window = min(load.end, text.sliding_window + load.rows - 1)
    seen = load.seen(1, text.sliding_window)
    entries = 0
    if plan.ratio:
        entries = min(load.end // plan.ratio, load.rows * text.index_topk)
        seen += load.seen(plan.ratio, text.index_topk)
    keys = load.sequences * (window * storage.window_row + entries * storage.entry_row)
    return Operator(
        name="attention.keys",
        moved_bytes=keys + 2 * load.all_rows * queries * storage.activation,
        flops=4 * load.sequences * seen * queries,
    )


def _experts(text: TextConfig, plan: LayerPlan, load: Load, storage: Storage) -> list[Operator]:
    hidden, width = text.hidden_size, text.moe_intermediate_size
    rows, uses = load.all_rows, plan.experts_per_token + text.n_shared_experts
    matrix = hidden * width
    read = load.experts * storage.expert + text.n_shared_experts * storage.dense
    gate = _product(
        "experts.gate",
        load,
        storage,
        reads=hidden,
        writes=plan.routed_experts,
        weights=((hidden * plan.routed_experts, storage.plain),),
    )
    gate_up = Operator(
        name="experts.gate_up",
        moved_bytes=2 * matrix * read + rows * (hidden + uses * width) * storage.activation,
        flops=2 * rows * uses * 2 * matrix,
    )
    down = Operator(
        name="experts.down",
        moved_bytes=matrix * read + rows * (uses * width + hidden) * storage.activation,
        flops=2 * rows * uses * matrix,
    )
    return [gate, gate_up, down]
