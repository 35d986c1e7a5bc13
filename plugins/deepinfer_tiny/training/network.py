"""How do tokens become hidden states: the V4.1 backbone over packed documents.

A document starts at its BOS row and at a row that is a multiple of 8, so that ratio-2 groups and
candidate blocks never straddle two documents; positions, windows, compressed entries, selection
and n-gram lookups restart with it.

Shapes: B rows of the batch, T tokens a row, N = B T, S streams, C hidden width, E entries.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from . import ngram
from .attention import window_keys, window_mask
from .config import ModelConfig
from .dropout import Dropout, drop
from .positions import Batch, Turns, rotary_frequencies
from .precision import Precision
from .selection import top_mask
from .sinkhorn import sinkhorn
from .stages import Stages

__all__ = ["Network", "Output", "Shared"]

Tensor = torch.Tensor
_INDEX_STRIDE = 4  # the indexer learns from every fourth query


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Result of one pass."""

    hidden_NC: Tensor  # after the final norm
    features_NX: Tensor  # drafter input, concatenated means over streams, detached
    index_loss: Tensor
    load_LE: Tensor  # tokens for each expert


@dataclass(slots=True)
class Shared:
    """What layers hand on: entries, selections, and the indexer's training material."""

    entry: dict[int, Tensor] = field(default_factory=dict)
    index_key: dict[int, Tensor] = field(default_factory=dict)
    chosen: dict[int, Tensor] = field(default_factory=dict)
    pool: Tensor | None = None
    query: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    mass: dict[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The backbone as a function of prepared weights."""

    config: ModelConfig
    tables: ngram.NgramTables
    precision: Precision
    stages: Stages = field(default_factory=Stages)
    index_training: bool = False
    frequencies: tuple[Tensor, Tensor] = field(init=False)  # plain, compressed

    def __post_init__(self) -> None:
        """Place the rotary frequencies on the device, since a captured graph copies nothing."""
        device = self.tables.key_V.device
        both = tuple(rotary_frequencies(self.config, c).to(device) for c in (False, True))
        object.__setattr__(self, "frequencies", both)

    def block_weights(self, w: dict[str, Tensor], prefix: str) -> list[dict[str, Tensor]]:
        """Tensors of every layer under their short names."""
        start = f"{prefix}."
        split = {k[len(start) :]: v.unbind(0) for k, v in w.items() if k.startswith(start)}
        count = len(split["sink"])
        return [{k: v[layer] for k, v in split.items()} for layer in range(count)]

    def embed(self, w: dict[str, Tensor], tokens: Tensor, dropout: Dropout) -> Tensor:
        """Initial trunk [N, S, C]: equal streams."""
        x = F.embedding(tokens.flatten(), w["embed"])
        x = drop(x, torch.rand_like(x, dtype=torch.float32), dropout.residual)
        return x.unsqueeze(1).expand(-1, self.config.hc_mult, -1).contiguous()

    def first_pre(self, trunk_NSC: Tensor) -> Tensor:
        """One-hot pre-mix of the first sublayer."""
        one = trunk_NSC.new_zeros(trunk_NSC.shape[:2], dtype=torch.float32)
        one[:, 0] = 1.0
        return one

    def __call__(
        self, w: dict[str, Tensor], batch: Batch, dropout: Dropout, dense: Tensor
    ) -> Output:
        """Run all layers.

        Args:
            w: from `precision.prepare`.
            batch: T a multiple of the window; E a power of two on an NVIDIA device.
            dropout: rates.
            dense: scalar tensor; 1 lets every query see all its visible entries.
        """
        config = self.config
        turns = Turns.at(self.frequencies, batch.position_BT.flatten())
        near = window_mask(batch.doc_BT, config.sliding_window)
        visible = {r: batch.visible(r) for r in set(config.compress_ratios) if r}
        history = ngram.history(self.tables, batch.tokens_BT, batch.doc_BT).flatten(0, 1)
        trunk = self.embed(w, batch.tokens_BT, dropout)
        pre, shared, features, load = self.first_pre(trunk), Shared(), [], []
        for layer, weights in enumerate(self.block_weights(w, "blocks")):
            if layer in config.engram_layer_ids:
                trunk = self.engram(w, trunk, history, layer, dropout)
            if layer in config.dspark_target_layer_ids:
                features.append(trunk.detach().float().mean(1).to(trunk.dtype))
            ratio = config.compress_ratios[layer]
            turn = turns.compressed if ratio else turns.plain

            def attention(x, xq, layer=layer, weights=weights, turn=turn, ratio=ratio):
                q, key, low = self._project(weights, batch, xq, turn)
                keys = window_keys(key, config.sliding_window)
                if not ratio:
                    return self.stages.attend(q, keys, near, weights["sink"]), turn
                self._compress(w, shared, layer, x, low, turn, visible[ratio], dense)
                out = self.far(shared, layer, q, keys, near, visible[ratio], weights)
                return out, turn

            trunk, pre = self.sublayers(weights, trunk, pre, attention, dropout, load)
        hidden, _ = self.stages.collapse(trunk, pre, w["norm"], config.rms_norm_eps, False)
        loss = self._index_loss(shared, visible) if self.index_training else dense.new_zeros(())
        return Output(
            hidden_NC=hidden,
            features_NX=torch.cat(features, dim=-1),
            index_loss=loss,
            load_LE=torch.stack(load),
        )

    def sublayers(self, weights, trunk, pre, attention, dropout, load):
        """Attention and experts of one layer, each under the shifted mHC.

        Args:
            weights: tensors of the layer.
            trunk: residual streams [N, S, C].
            pre: pre-mix of the sublayer before [N, S].
            attention: maps (x, xq) to the attention output and the rotation to undo.
            dropout: rates.
            load: list that receives the tokens of each expert.

        Returns:
            New trunk and the pre-mix for the next sublayer.
        """
        config, stages, eps = self.config, self.stages, self.config.rms_norm_eps
        act = self.precision.activations
        for part in ("attn", "ffn"):
            own_pre, post, matrix = stages.mixes(
                trunk, weights[f"hc_{part}_fn"], weights[f"hc_{part}_base"],
                weights[f"hc_{part}_scale"], eps, config.hc_eps,
            )  # fmt: skip
            comb = sinkhorn(matrix, config.hc_sinkhorn_iters, config.hc_eps)
            x, xq = stages.collapse(trunk, pre, weights[f"{part}_norm"], eps, act)
            if part == "attn":
                o, turn = attention(x, xq)
                y = stages.output(o.reshape(-1, *o.shape[-2:]), weights, turn, config.o_groups, act)
            else:
                is_draft = weights["gate"].shape[0] != config.n_routed_experts
                top = config.dspark_num_experts_per_tok if is_draft else config.num_experts_per_tok
                y, count = stages.experts(
                    x, xq, weights, top, config.routed_scaling_factor, config.swiglu_limit, act
                )
                load.append(count.detach())
            noise = torch.rand_like(y, dtype=torch.float32)
            trunk = stages.expand(trunk, y, post, comb, noise, dropout.residual)
            pre = own_pre
        return trunk, pre

    def _project(self, weights, batch, xq, turn):
        config, window = self.config, self.config.sliding_window
        rows, tokens = batch.tokens_BT.shape
        q, kv, low = self.stages.projections(
            xq, weights, turn, config.rms_norm_eps, self.precision.activations
        )
        key = self.stages.quantised_keys(kv, self.precision.caches)
        q = q.unflatten(0, (rows, tokens // window, window))
        return q, key.unflatten(0, (rows, tokens)), low

    def engram(self, w, trunk, history, layer, dropout):
        config = self.config
        n = config.engram_layer_ids.index(layer)
        rows = ngram.rows(self.tables, history, n, config.engram_n_heads)
        found = F.embedding(rows, w[f"engram.table{n}"])
        noise = torch.rand_like(found[..., :1])
        weights = {k: w[f"engram.{k}"][n] for k in ("wkv", "q", "k")}
        return self.stages.engram(
            trunk, found, weights, noise, dropout.engram, config.rms_norm_eps,
            self.precision.weights,
        )  # fmt: skip

    def _compress(self, w, shared, layer, x, low, turn, visible, dense):
        """Entries and index keys of a source layer, then its selection."""
        config, stages = self.config, self.stages
        eps, caches = config.rms_norm_eps, self.precision.caches
        rows, tokens, _ = visible.shape
        if layer in config.kv_source_layer_ids:
            n, ratio = config.kv_source_layer_ids.index(layer), config.compress_ratios[layer]
            weights = {k: w[k][n] for k in ("comp_wkv", "comp_norm", "index_wk", "index_norm")}
            compress = stages.compress_single
            if ratio == 2:
                weights["comp_wgate"] = w["comp_wgate"][n]
                compress = stages.compress_pairs
            latent = compress(x.unflatten(0, (rows, tokens)), weights, eps)
            at = tuple(t.unflatten(0, (rows, tokens))[:, ::ratio] for t in turn)
            shared.entry[layer], shared.index_key[layer] = stages.entry_products(
                latent, weights, at, eps, caches
            )
        if layer in config.index_source_layer_ids:
            n = config.index_source_layer_ids.index(layer)
            weights = {k: w[k][n] for k in ("index_wq", "index_head")}
            query, head = stages.index_queries(low, x, weights, turn, caches)
            query, head = (t.unflatten(0, (rows, tokens)) for t in (query, head))
            shared.query[layer] = (query, head)
            with torch.no_grad():
                self.select(shared, layer, query, head, visible, dense)

    def select(self, shared, layer, query, head, visible, dense):
        config = self.config
        key = shared.index_key[config.source(config.kv_source_layer_ids, layer)]
        score = self.stages.index_scores(query.detach(), head.detach(), key.detach())
        eligible = visible
        if layer > config.candidate_source_layer_id and shared.pool is not None:
            eligible = visible & shared.pool
        chosen = top_mask(score.masked_fill(~eligible, -torch.inf), config.index_topk)
        shared.chosen[layer] = chosen | (visible & (dense > 0))
        if layer == config.candidate_source_layer_id:
            blocks = self.stages.pool_blocks(score, visible, config.candidate_block_size)
            kept = top_mask(blocks, config.candidate_topk_blocks)
            shared.pool = kept.repeat_interleave(config.candidate_block_size, dim=-1)

    def far(self, shared, layer, q, keys, near, visible, weights):
        config = self.config
        entry = shared.entry[config.source(config.kv_source_layer_ids, layer)]
        source = config.source(config.index_source_layer_ids, layer)
        out, lse = self.stages.attend_far(
            q, keys, near, entry, shared.chosen[source], weights["sink"]
        )
        if self.index_training:
            with torch.no_grad():
                some = slice(_INDEX_STRIDE - 1, None, _INDEX_STRIDE)
                mass = self.stages.entry_mass(
                    q.detach().flatten(1, 2)[:, some].contiguous(), entry.detach(),
                    visible[:, some].contiguous(), lse.flatten(1, 2)[:, some].contiguous(),
                )  # fmt: skip
                shared.mass[source] = shared.mass.get(source, 0) + mass
        return out

    def _index_loss(self, shared, visible):
        config = self.config
        some, total = slice(_INDEX_STRIDE - 1, None, _INDEX_STRIDE), 0
        for source, mass in shared.mass.items():
            query, head = shared.query[source]
            key = shared.index_key[config.source(config.kv_source_layer_ids, source)]
            score = self.stages.index_scores(
                query[:, some].contiguous(), head[:, some].contiguous(), key
            )
            seen = visible[config.compress_ratios[source]][:, some].contiguous()
            total = total + self.stages.index_loss(score, mass, seen)
        return total / max(len(shared.mass), 1)
