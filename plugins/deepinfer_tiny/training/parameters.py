"""Which tensors does the network learn, and under which checkpoint names?

Tensors of equal shape are stacked over layers, so that quantisers and the optimiser are a few
launches. The stacked form is flat: ``"blocks.wq_a"`` is [layers, q_lora_rank, hidden].
`to_checkpoint` and `from_checkpoint` translate to and from one plain tensor per published name.

Shapes: Z stacked layers, E experts, I expert width, C hidden width.
"""

from __future__ import annotations

import math

import torch

from .config import ModelConfig

__all__ = ["from_checkpoint", "initialise", "shapes", "to_checkpoint"]

Tensors = dict[str, torch.Tensor]

# Stacked name -> name inside a layer of the checkpoint.
_BLOCK = {
    "wq_a": "attn.wq_a.weight",
    "wq_b": "attn.wq_b.weight",
    "wkv": "attn.wkv.weight",
    "wo_a": "attn.wo_a.weight",
    "wo_b": "attn.wo_b.weight",
    "q_norm": "attn.q_norm.weight",
    "kv_norm": "attn.kv_norm.weight",
    "sink": "attn.attn_sink",
    "attn_norm": "attn_norm.weight",
    "ffn_norm": "ffn_norm.weight",
    "hc_attn_fn": "hc_attn_fn",
    "hc_attn_base": "hc_attn_base",
    "hc_attn_scale": "hc_attn_scale",
    "hc_ffn_fn": "hc_ffn_fn",
    "hc_ffn_base": "hc_ffn_base",
    "hc_ffn_scale": "hc_ffn_scale",
    "gate": "ffn.gate.weight",
    "gate_bias": "ffn.gate.bias",
    "gate_bias_vl": "ffn.gate.bias_vl",
    "shared_w1": "ffn.shared_experts.w1.weight",
    "shared_w2": "ffn.shared_experts.w2.weight",
    "shared_w3": "ffn.shared_experts.w3.weight",
}
_KV = {
    "comp_wkv": "attn.compressor.wkv.weight",
    "comp_norm": "attn.compressor.norm.weight",
    "index_wk": "attn.indexer.wk.weight",
    "index_norm": "attn.indexer.k_norm.weight",
}
_GATED = {"comp_wgate": "attn.compressor.wgate.weight"}
_INDEX = {
    "index_wq": "attn.indexer.wq_b.weight",
    "index_head": "attn.indexer.weights_proj.weight",
}
_ENGRAM = {
    "wkv": "engram.wkv.weight",
    "q": "engram.q_weight",
    "k": "engram.k_weight",
}
_GLOBAL = {"embed": "embed.weight", "head": "head.weight", "norm": "norm.weight"}


def _draft_names(config: ModelConfig) -> dict[str, str]:
    last = config.num_nextn_predict_layers - 1
    return {
        "draft.main_proj": "mtp.0.main_proj.weight",
        "draft.main_norm": "mtp.0.main_norm.weight",
        "draft.norm": f"mtp.{last}.norm.weight",
        "draft.markov_embed": f"mtp.{last}.markov_head.embed.weight",
        "draft.markov_head": f"mtp.{last}.markov_head.head.weight",
        "draft.confidence": f"mtp.{last}.confidence_head.proj.weight",
    }


def _block_shapes(config: ModelConfig, experts: int) -> dict[str, tuple[int, ...]]:
    c, heads, d = config.hidden_size, config.num_attention_heads, config.head_dim
    wide, groups, width = heads * d, config.o_groups, config.moe_intermediate_size
    low_rank, mixes = groups * config.o_lora_rank, (2 + config.hc_mult) * config.hc_mult
    hc = {}
    for part in ("attn", "ffn"):
        hc[f"hc_{part}_fn"] = (mixes, config.hc_mult * c)
        hc[f"hc_{part}_base"] = (mixes,)
        hc[f"hc_{part}_scale"] = (3,)
    return {
        "wq_a": (config.q_lora_rank, c),
        "wq_b": (wide, config.q_lora_rank),
        "wkv": (d, c),
        "wo_a": (low_rank, wide // groups),
        "wo_b": (c, low_rank),
        "q_norm": (config.q_lora_rank,),
        "kv_norm": (d,),
        "sink": (heads,),
        "attn_norm": (c,),
        "ffn_norm": (c,),
        **hc,
        "gate": (experts, c),
        "gate_bias": (experts,),
        "gate_bias_vl": (experts,),
        "shared_w1": (width, c),
        "shared_w2": (c, width),
        "shared_w3": (width, c),
        "w1": (experts, width, c),
        "w2": (experts, c, width),
        "w3": (experts, width, c),
    }


def shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every stacked tensor."""
    c, d, v = config.hidden_size, config.head_dim, config.vocab_size
    di, hi = config.index_head_dim, config.index_n_heads
    kv, index = len(config.kv_source_layer_ids), len(config.index_source_layer_ids)
    gated = sum(config.compress_ratios[i] == 2 for i in config.kv_source_layer_ids)
    engrams, rank = len(config.engram_layer_ids), config.dspark_markov_rank
    draft, layers = config.num_nextn_predict_layers, config.num_hidden_layers
    rows = dict(enumerate(config.engram_num_embeddings))
    found = {"embed": (v, c), "head": (v, c), "norm": (c,)}
    for prefix, count, experts in (
        ("blocks", layers, config.n_routed_experts),
        ("draft_blocks", draft, config.dspark_n_routed_experts),
    ):
        for name, shape in _block_shapes(config, experts).items():
            found[f"{prefix}.{name}"] = (count, *shape)
    found |= {"comp_wkv": (kv, d, c), "comp_norm": (kv, d), "comp_wgate": (gated, d, c)}
    found |= {"index_wk": (kv, di, d), "index_norm": (kv, di)}
    found |= {"index_wq": (index, hi * di, config.q_lora_rank), "index_head": (index, hi, c)}
    found |= {f"engram.table{i}": (n, config.engram_head_dim) for i, n in rows.items()}
    wide = config.engram_columns * config.engram_head_dim
    found["engram.wkv"] = (engrams, (config.hc_mult + 1) * c, wide)
    found |= {"engram.q": (engrams, config.hc_mult, c), "engram.k": (engrams, config.hc_mult, c)}
    found |= {
        "draft.main_proj": (c, len(config.dspark_target_layer_ids) * c),
        "draft.main_norm": (c,),
        "draft.norm": (c,),
        "draft.markov_embed": (v, rank),
        "draft.markov_head": (v, rank),
        "draft.confidence": (1, c + rank),
    }
    return found


def initialise(config: ModelConfig, seed: int) -> Tensors:
    """Starting values, fp32: normal 0.02 (embedding 0.5 of 1/sqrt C), ones, zeros.

    Output projections start smaller by 1/sqrt(2 layers), so the residual sum starts near the
    embedding.
    """
    generator = torch.Generator().manual_seed(seed)
    quiet = 1.0 / math.sqrt(2 * config.num_hidden_layers)
    found = {}
    for name, shape in shapes(config).items():
        leaf = name.rsplit(".", 1)[-1]
        if leaf.endswith(("norm", "scale")) or name in ("engram.q", "engram.k"):
            found[name] = torch.ones(shape)
        elif leaf in ("sink", "gate_bias", "gate_bias_vl") or leaf.endswith("base"):
            found[name] = torch.zeros(shape)
        else:
            std = 0.02 if leaf.endswith("fn") else 0.5 / math.sqrt(shape[-1])
            if leaf in ("wo_b", "w2", "shared_w2"):
                std *= quiet
            if leaf in ("embed", "markov_embed") or "table" in leaf:
                std = 0.05
            found[name] = torch.randn(shape, generator=generator) * std
    return found


def _places(config: ModelConfig) -> list[tuple[str, int | None, str]]:
    """(stacked name, index or None, checkpoint name) of every plain tensor but the experts."""
    found: list[tuple[str, int | None, str]] = [(k, None, v) for k, v in _GLOBAL.items()]
    found += [(k, None, v) for k, v in _draft_names(config).items()]
    layers, draft = config.num_hidden_layers, config.num_nextn_predict_layers
    for prefix, outer, count in (("blocks", "layers", layers), ("draft_blocks", "mtp", draft)):
        for i in range(count):
            found += [(f"{prefix}.{k}", i, f"{outer}.{i}.{v}") for k, v in _BLOCK.items()]
    kv = config.kv_source_layer_ids
    gated = [i for i in kv if config.compress_ratios[i] == 2]
    for group, ids in ((_KV, kv), (_GATED, gated), (_INDEX, config.index_source_layer_ids)):
        for k, v in group.items():
            found += [(k, n, f"layers.{layer}.{v}") for n, layer in enumerate(ids)]
    for n, layer in enumerate(config.engram_layer_ids):
        found.append((f"engram.table{n}", None, f"layers.{layer}.engram.embed.weight"))
        found += [(f"engram.{k}", n, f"layers.{layer}.{v}") for k, v in _ENGRAM.items()]
    return found


def to_checkpoint(config: ModelConfig, stacked: Tensors) -> Tensors:
    """One unquantised tensor per checkpoint name (views of the stacked tensors)."""
    found = {}
    for name, index, public in _places(config):
        found[public] = stacked[name] if index is None else stacked[name][index]
    for prefix, outer in (("blocks", "layers"), ("draft_blocks", "mtp")):
        for w in ("w1", "w2", "w3"):
            for i, layer in enumerate(stacked[f"{prefix}.{w}"]):
                for e, expert in enumerate(layer):
                    found[f"{outer}.{i}.ffn.experts.{e}.{w}.weight"] = expert
    return found


def from_checkpoint(config: ModelConfig, plain: Tensors) -> Tensors:
    """Inverse of `to_checkpoint`: new stacked tensors."""
    stacked = {name: torch.empty(shape) for name, shape in shapes(config).items()}
    for public, view in to_checkpoint(config, stacked).items():
        view.copy_(plain[public])
    return stacked
