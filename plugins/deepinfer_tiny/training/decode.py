"""Which text does the network write by itself, for many prompts in lockstep?

All sequences advance one position a step; where a prompt still has tokens they are taken instead of
the network's choice. Keys of all positions are kept, masks select what a query may see, and one
step has static shapes, so that it can be captured and replayed.

Shapes: B sequences, L longest length, S streams, E compressed entries.
"""

from __future__ import annotations

import torch

from .attention import Tensor
from .dropout import Dropout
from .network import Network, Shared
from .positions import Turns

__all__ = ["Decoder"]


class Decoder:
    """Buffers of a lockstep generation and the step that advances it."""

    def __init__(self, network: Network, w: dict[str, Tensor], batch: int, length: int) -> None:
        """Allocate all keys.

        Args:
            network: backbone; its stages run uncompiled here.
            w: prepared weights.
            batch: sequences.
            length: tokens of the longest sequence, a multiple of 8.
        """
        config = network.config
        device, dtype = w["embed"].device, w["embed"].dtype
        self.network, self.w, self.length = network, w, length
        self.tokens_BL = torch.full((batch, length), config.pad_token_id, device=device)
        self.given_BL = torch.zeros((batch, length), dtype=torch.bool, device=device)
        self.position = torch.zeros((), dtype=torch.int64, device=device)
        self.temperature_B = torch.zeros(batch, device=device)
        shape = (config.num_hidden_layers, batch, length, config.head_dim)
        self._window = torch.zeros(shape, device=device, dtype=dtype)
        self._entry, self._index, self._raw = {}, {}, {}
        for layer in config.kv_source_layer_ids:
            entries = length // config.compress_ratios[layer]
            self._entry[layer] = torch.zeros(
                batch, entries, config.head_dim, device=device, dtype=dtype
            )
            self._index[layer] = torch.zeros(
                batch, entries, config.index_head_dim, device=device, dtype=dtype
            )
            self._raw[layer] = torch.zeros(batch, 2, config.hidden_size, device=device, dtype=dtype)

    @torch.no_grad()
    def step(self) -> None:
        """Read the token at ``position``, write the one after it, and move on."""
        config, p = self.network.config, self.position
        token_B = self.tokens_BL.index_select(1, p.view(1)).squeeze(1)
        hidden = self._forward(token_B)
        logits = hidden.float() @ self.w["head"].float().T
        logits[:, config.pad_token_id] = -torch.inf
        logits[:, config.bos_token_id] = -torch.inf
        noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-9, 1 - 1e-7)))
        choice = (logits + noise * self.temperature_B.unsqueeze(-1)).argmax(-1)
        # After its EOS a sequence is only padding.
        ended = (token_B == config.eos_token_id) | (token_B == config.pad_token_id)
        choice = torch.where(ended, config.pad_token_id, choice)
        following = (p + 1).clamp(max=self.length - 1).view(1)
        given = self.given_BL.index_select(1, following).squeeze(1)
        kept = self.tokens_BL.index_select(1, following).squeeze(1)
        chosen = torch.where(given, kept, choice)
        self.tokens_BL.index_copy_(1, following, chosen.unsqueeze(1))
        self.position.add_(1)

    def _forward(self, token_B: Tensor) -> Tensor:
        network, config, w = self.network, self.network.config, self.w
        device, eps = token_B.device, config.rms_norm_eps
        turns = Turns.at(network.frequencies, self.position.expand(token_B.shape[0]))
        order = torch.arange(self.length, device=device)
        near = (order <= self.position) & (order > self.position - config.sliding_window)
        near = near.expand(token_B.shape[0], 1, 1, -1)
        visible = {
            r: ((order[: self.length // r] + 1) * r - 1 <= self.position).expand(
                token_B.shape[0], 1, -1
            )
            for r in set(config.compress_ratios)
            if r
        }
        history = self._history()
        none = Dropout.none(device)
        trunk = network.embed(w, token_B, none)
        pre, shared = network.first_pre(trunk), Shared(entry=self._entry, index_key=self._index)
        for layer, weights in enumerate(network.block_weights(w, "blocks")):
            if layer in config.engram_layer_ids:
                trunk = network.engram(w, trunk, history, layer, none)
            ratio = config.compress_ratios[layer]
            turn = turns.compressed if ratio else turns.plain

            def attention(x, xq, layer=layer, weights=weights, turn=turn, ratio=ratio):
                q, kv, low = network.stages.projections(
                    xq, weights, turn, eps, network.precision.activations
                )
                key = network.stages.quantised_keys(kv, network.precision.caches)
                self._window[layer].index_copy_(1, self.position.view(1), key.unsqueeze(1))
                q, keys = q[:, None, None], self._window[layer].unsqueeze(1)
                if not ratio:
                    return network.stages.attend(q, keys, near, weights["sink"]), turn
                if layer in config.kv_source_layer_ids:
                    self._store(layer, x)
                self._choose(shared, layer, x, low, turn, visible[ratio])
                out = network.far(shared, layer, q, keys, near, visible[ratio], weights)
                return out, turn

            trunk, pre = network.sublayers(weights, trunk, pre, attention, none, [])
        hidden, _ = network.stages.collapse(trunk, pre, w["norm"], eps, False)
        return hidden

    def _history(self) -> Tensor:
        """Compressed ids [B, G] of this and the preceding tokens."""
        tables = self.network.tables
        parts = []
        for k in range(tables.multiplier_LG.shape[1]):
            at = self.position - k
            token = self.tokens_BL.index_select(1, at.clamp(min=0).view(1)).squeeze(1)
            parts.append(torch.where(at >= 0, tables.key_V[token], tables.pad_key))
        return torch.stack(parts, dim=-1)

    def _store(self, layer: int, x_BC: Tensor) -> None:
        """Write the entry that this position belongs to; a half pair is invisible until full."""
        network, config, w = self.network, self.network.config, self.w
        n, ratio = config.kv_source_layer_ids.index(layer), config.compress_ratios[layer]
        weights = {k: w[k][n] for k in ("comp_wkv", "comp_norm", "index_wk", "index_norm")}
        group = torch.div(self.position, ratio, rounding_mode="floor")
        if ratio == 2:
            weights["comp_wgate"] = w["comp_wgate"][n]
            self._raw[layer].index_copy_(1, (self.position % 2).view(1), x_BC.unsqueeze(1))
            latent = network.stages.compress_pairs(self._raw[layer], weights, config.rms_norm_eps)
        else:
            latent = network.stages.compress_single(x_BC.unsqueeze(1), weights, config.rms_norm_eps)
        at = Turns.at(network.frequencies, (group * ratio).view(1)).compressed
        entry, key = network.stages.entry_products(
            latent, weights, at, config.rms_norm_eps, network.precision.caches
        )
        self._entry[layer].index_copy_(1, group.view(1), entry)
        self._index[layer].index_copy_(1, group.view(1), key)

    def _choose(self, shared, layer, x, low, turn, visible) -> None:
        network, config = self.network, self.network.config
        if layer not in config.index_source_layer_ids:
            return
        n = config.index_source_layer_ids.index(layer)
        weights = {k: self.w[k][n] for k in ("index_wq", "index_head")}
        query, head = network.stages.index_queries(low, x, weights, turn, network.precision.caches)
        dense = torch.zeros((), device=x.device)
        network.select(shared, layer, query.unsqueeze(1), head.unsqueeze(1), visible, dense)
