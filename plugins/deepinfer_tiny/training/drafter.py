"""What does the block drafter propose after each anchor?

An anchor is a token that was just sampled (the *golden* token) at row t. The block holds it and
four noise tokens at positions t .. t + 4; keys are the projected target features of at most
128 rows before t, and the block itself, not causal.

Shapes: B rows, T tokens, A anchors a row, P block positions (5), W window, C hidden width,
V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from .dropout import Dropout
from .formats import fake_row32
from .layers import rms_norm, rotate
from .network import Network
from .positions import Batch, Turns

__all__ = ["Proposal", "context_keys", "propose", "sequential"]

Tensor = torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """State of every block after the last draft layer."""

    raw_BAPC: Tensor  # before the norm: what the confidence head reads
    base_BAPV: Tensor  # logits without the Markov term
    load_LE: Tensor  # tokens for each expert of each draft layer


def context_keys(
    network: Network, w: dict[str, Tensor], features_NX: Tensor, batch: Batch
) -> list[Tensor]:
    """Keys [B, T, D] of every draft layer for every row."""
    config, p = network.config, network.precision
    rows, tokens = batch.tokens_BT.shape
    cos, sin = Turns.at(network.frequencies, batch.position_BT.flatten()).plain
    feature = fake_row32(features_NX) if p.activations else features_NX
    m = rms_norm(feature @ w["draft.main_proj"].T, w["draft.main_norm"], config.rms_norm_eps)
    m = fake_row32(m) if p.activations else m
    found = []
    for i in range(config.num_nextn_predict_layers):
        norm = w["draft_blocks.kv_norm"][i]
        kv = rms_norm(m @ w["draft_blocks.wkv"][i].T, norm, config.rms_norm_eps)
        key = rotate(kv, cos, sin)
        key = fake_row32(key) if p.caches else key
        found.append(key.unflatten(0, (rows, tokens)))
    return found


def _context(batch: Batch, anchor_BA: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """Rows [B, A, W] before each anchor and which of them exist in its document."""
    back = torch.arange(-window, 0, device=anchor_BA.device)
    row = anchor_BA.unsqueeze(-1) + back
    position = batch.position_BT.gather(1, anchor_BA).unsqueeze(-1) + back
    return row.clamp(min=0), position >= 0


def propose(
    network: Network, w: dict[str, Tensor], keys: list[Tensor], batch: Batch,
    anchor_BA: Tensor, golden_BA: Tensor, dropout: Dropout,
) -> Proposal:  # fmt: skip
    """Run the draft layers for all anchors at once.

    Args:
        network: sizes, precision and stages.
        w: prepared draft weights, ``embed`` and ``head`` among them.
        keys: from `context_keys`.
        batch: the rows that the anchors lie in.
        anchor_BA: row of the golden token; its own features are not used.
        golden_BA: its id.
        dropout: rates.
    """
    config, stages, p = network.config, network.stages, network.precision
    rows, anchors = anchor_BA.shape
    block = config.dspark_block_size
    inputs = golden_BA.new_full((rows, anchors, block), config.dspark_noise_token_id)
    inputs[..., 0] = golden_BA
    row, exists = _context(batch, anchor_BA, config.sliding_window)
    seen = F.pad(exists, (0, block), value=True).unsqueeze(2).expand(-1, -1, block, -1)
    place = torch.arange(block, device=anchor_BA.device)
    position = batch.position_BT.gather(1, anchor_BA).unsqueeze(-1) + place
    turn = Turns.at(network.frequencies, position.flatten()).plain
    which = torch.arange(rows, device=row.device)[:, None, None]
    trunk = network.embed(w, inputs, dropout)
    pre, load = network.first_pre(trunk), []
    for layer, weights in enumerate(network.block_weights(w, "draft_blocks")):

        def attention(x, xq, layer=layer, weights=weights):
            q, kv, _ = stages.projections(xq, weights, turn, config.rms_norm_eps, p.activations)
            own = stages.quantised_keys(kv, p.caches).unflatten(0, (rows, anchors, block))
            key = torch.cat((keys[layer][which, row], own), dim=2)
            q = q.unflatten(0, (rows, anchors, block))
            return stages.attend(q, key, seen, weights["sink"]), turn

        trunk, pre = network.sublayers(weights, trunk, pre, attention, dropout, load)
    raw = (pre.unsqueeze(-1) * trunk.float()).sum(1).to(trunk.dtype)
    hidden = rms_norm(raw, w["draft.norm"], config.rms_norm_eps)
    base = hidden.float() @ w["head"].float().T
    shape = (rows, anchors, block)
    return Proposal(
        raw_BAPC=raw.unflatten(0, shape),
        base_BAPV=base.unflatten(0, shape),
        load_LE=torch.stack(load),
    )


def sequential(
    w: dict[str, Tensor], raw: Tensor, base: Tensor, previous: Tensor
) -> tuple[Tensor, Tensor]:
    """Markov logits and confidence logit of one position given the previous token.

    Args:
        w: prepared draft weights.
        raw: state before the norm [..., C].
        base: logits without the Markov term [..., V].
        previous: the token before, int64 [...].

    Returns:
        Draft logits fp32 [..., V]; confidence logit fp32 [...].
    """
    markov = F.embedding(previous, w["draft.markov_embed"])
    logits = base + markov.float() @ w["draft.markov_head"].float().T
    state = torch.cat((raw, markov), dim=-1).float()
    return logits, (state @ w["draft.confidence"].float().T).squeeze(-1)
