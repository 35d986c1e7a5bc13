"""Which other tokens does a token see, and what does it take from them?

Rows hold several documents; masks keep them apart. A query reads the keys of its window (built
in blocks of one window) and the chosen compressed entries, under one softmax with a sink.

Shapes: B rows of the batch, T tokens, J query blocks of W queries and K keys, H heads, D head
width, E compressed entries, M index heads, I index width, R rotated pairs.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .formats import fake_fp4_16, fake_mxfp4, fake_row32
from .layers import rms_norm, rotate

__all__ = [
    "attend",
    "attend_far",
    "compress_pairs",
    "compress_single",
    "entry_mass",
    "entry_products",
    "index_loss",
    "index_queries",
    "index_scores",
    "pool_blocks",
    "window_keys",
    "window_mask",
]

Tensor = torch.Tensor
Turn = tuple[Tensor, Tensor]


def window_keys(kv_BTD: Tensor, window: int) -> Tensor:
    """Keys [B, J, 2 W, D]: each block of W queries with the block before it."""
    padded = F.pad(kv_BTD, (0, 0, window, 0)).unflatten(1, (-1, window))
    return torch.cat((padded[:, :-1], padded[:, 1:]), dim=2)


def window_mask(doc_BT: Tensor, window: int) -> Tensor:
    """Boolean [B, J, W, 2 W]: causal, at most W keys, same document."""
    doc_BJK = window_keys((doc_BT + 1).unsqueeze(-1), window).squeeze(-1) - 1
    doc_BJW = doc_BT.unflatten(1, (-1, window))
    i = torch.arange(window, device=doc_BT.device).unsqueeze(-1)
    j = torch.arange(2 * window, device=doc_BT.device)
    near = (j > i) & (j <= i + window)
    return near & (doc_BJW.unsqueeze(-1) == doc_BJK.unsqueeze(-2))


def attend(q_BJWHD: Tensor, key_BJKD: Tensor, mask_BJWK: Tensor, sink_H: Tensor) -> Tensor:
    """Window attention alone (ratio-0 layers and the drafter); output like the queries."""
    _, _, width, heads, head_dim = q_BJWHD.shape
    logits = (q_BJWHD.flatten(2, 3) @ key_BJKD.mT).float() * head_dim**-0.5
    logits = logits.unflatten(2, (width, heads)).masked_fill(~mask_BJWK.unsqueeze(3), -torch.inf)
    top = torch.maximum(logits.detach().amax(-1), sink_H.detach())
    weight = torch.exp(logits - top.unsqueeze(-1))
    total = weight.sum(-1) + torch.exp(sink_H - top)
    probability = (weight / total.unsqueeze(-1)).to(key_BJKD.dtype)
    return (probability.flatten(2, 3) @ key_BJKD).unflatten(2, (width, heads))


def attend_far(
    q_BJWHD: Tensor, key_BJKD: Tensor, mask_BJWK: Tensor, far_BED: Tensor, chosen_BTE: Tensor,
    sink_H: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attention over window and chosen compressed entries.

    Returns:
        Output like the queries; logarithm of the softmax denominator [B, J, W, H], detached.
    """
    _, blocks, width, heads, head_dim = q_BJWHD.shape
    scale = head_dim**-0.5
    near = (q_BJWHD.flatten(2, 3) @ key_BJKD.mT).float() * scale
    near = near.unflatten(2, (width, heads)).masked_fill(~mask_BJWK.unsqueeze(3), -torch.inf)
    far = (q_BJWHD.flatten(1, 3) @ far_BED.mT).float() * scale
    far = far.unflatten(1, (blocks, width, heads))
    chosen = chosen_BTE.unflatten(1, (blocks, width)).unsqueeze(3)
    far = far.masked_fill(~chosen, -torch.inf)
    top = torch.maximum(near.detach().amax(-1), far.detach().amax(-1))
    top = torch.maximum(top, sink_H.detach())
    near, far = torch.exp(near - top.unsqueeze(-1)), torch.exp(far - top.unsqueeze(-1))
    total = near.sum(-1) + far.sum(-1) + torch.exp(sink_H - top)
    near = (near / total.unsqueeze(-1)).to(key_BJKD.dtype)
    far = (far / total.unsqueeze(-1)).to(far_BED.dtype)
    out = (near.flatten(2, 3) @ key_BJKD).unflatten(2, (width, heads))
    out = out + (far.flatten(1, 3) @ far_BED).unflatten(1, (blocks, width, heads))
    return out, (top + total.log()).detach()


def compress_pairs(x_BTC: Tensor, w: dict[str, Tensor], eps: float) -> Tensor:
    """Latent [B, T / 2, D] of a ratio-2 layer: gated sum of two neighbouring tokens, normed."""
    value = (x_BTC @ w["comp_wkv"].T).float().unflatten(1, (-1, 2))
    gate = (x_BTC @ w["comp_wgate"].T).float().unflatten(1, (-1, 2))
    latent = (torch.softmax(gate, dim=2) * value).sum(2).to(x_BTC.dtype)
    return rms_norm(latent, w["comp_norm"], eps)


def compress_single(x_BTC: Tensor, w: dict[str, Tensor], eps: float) -> Tensor:
    """Latent [B, T, D] of a ratio-1 layer."""
    return rms_norm(x_BTC @ w["comp_wkv"].T, w["comp_norm"], eps)


def entry_products(
    latent_BED: Tensor, w: dict[str, Tensor], turn: Turn, eps: float, quantise: bool
) -> tuple[Tensor, Tensor]:
    """Cached forms of a latent: attention entry [B, E, D] and index key [B, E, I].

    The index key does not pass its gradient on to the latent.
    """
    entry = rotate(latent_BED, *turn)
    key = rotate(rms_norm(latent_BED.detach() @ w["index_wk"].T, w["index_norm"], eps), *turn)
    return (fake_fp4_16(entry), fake_mxfp4(key)) if quantise else (entry, key)


def index_queries(
    low_NQ: Tensor, x_NC: Tensor, w: dict[str, Tensor], turn: Turn, quantise: bool
) -> tuple[Tensor, Tensor]:
    """Index queries [N, M, I] and their signed head weights [N, M]; the inputs are detached."""
    cos, sin = turn
    head_NM = x_NC.detach() @ w["index_head"].T
    query = (low_NQ.detach() @ w["index_wq"].T).unflatten(-1, (head_NM.shape[-1], -1))
    query = rotate(query, cos.unsqueeze(1), sin.unsqueeze(1))
    return fake_mxfp4(query) if quantise else query, head_NM


def index_scores(query_BTMI: Tensor, head_BTM: Tensor, key_BEI: Tensor) -> Tensor:
    """Score of every entry for every query, fp32 [B, T, E]."""
    _, _, heads, width = query_BTMI.shape
    dots = (query_BTMI.flatten(1, 2) @ key_BEI.mT).unflatten(1, (-1, heads))
    weighted = F.relu(dots.float()) * head_BTM.float().unsqueeze(-1)
    return weighted.sum(2) * (width * heads) ** -0.5


def pool_blocks(score_BTE: Tensor, visible_BTE: Tensor, block: int) -> Tensor:
    """Score of every block of entries [B, T, E / block] for the candidate pool.

    The maximum over visible entries; +inf for the block that holds the last visible entry;
    -inf where no entry is visible.
    """
    visible = visible_BTE.unflatten(-1, (-1, block))
    score = score_BTE.unflatten(-1, (-1, block)).masked_fill(~visible, -torch.inf).amax(-1)
    any_visible = visible.any(-1)
    order = torch.arange(score.shape[-1], device=score.device)
    last = torch.where(any_visible, order, -1).amax(-1, keepdim=True)
    return torch.where(any_visible & (order == last), torch.inf, score)


def entry_mass(q_BTHD: Tensor, far_BED: Tensor, visible_BTE: Tensor, lse_BTH: Tensor) -> Tensor:
    """Attention that each visible entry would get, summed over heads: [B, T, E], detached."""
    heads, head_dim = q_BTHD.shape[2:]
    logits = (q_BTHD.flatten(1, 2) @ far_BED.mT).float() * head_dim**-0.5
    logits = logits.unflatten(1, (-1, heads)) - lse_BTH.unsqueeze(-1)
    return torch.exp(logits.clamp(max=20.0)).sum(2) * visible_BTE


def index_loss(score_BTE: Tensor, mass_BTE: Tensor, visible_BTE: Tensor) -> Tensor:
    """Mean KL divergence from the attention mass to the softmax of the index scores."""
    target = mass_BTE / (mass_BTE.sum(-1, keepdim=True) + 1e-20)
    log_p = torch.log_softmax(score_BTE.masked_fill(~visible_BTE, -1e4), dim=-1)
    divergence = torch.where(target > 0, target * (target.clamp(min=1e-20).log() - log_p), 0.0).sum(
        -1
    )
    some = visible_BTE.any(-1)
    return (divergence * some).sum() / some.sum().clamp(min=1)


def quantised_keys(kv: Tensor, quantise: bool) -> Tensor:
    """Window keys as their cache holds them (MXFP8)."""
    return fake_row32(kv) if quantise else kv
