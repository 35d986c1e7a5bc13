"""What happens to one token at a time: streams, norms, projections, experts, Engram?

Nothing here looks at another token, so every function takes flat rows. All are differentiable and
free of data-dependent shapes; `stages.Stages` compiles them.

Shapes: N tokens, S residual streams (4), C hidden width, H heads, D head width, E experts,
I expert width, R rotated pairs, K Engram columns.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .dropout import drop
from .formats import fake_row32

__all__ = [
    "collapse",
    "engram",
    "expand",
    "experts",
    "mixes",
    "output",
    "projections",
    "rms_norm",
    "rotate",
]

Tensor = torch.Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm in fp32, stored as ``x``."""
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (scaled * weight.float()).to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the last 2 R channels as interleaved pairs; cos and sin [..., R] broadcast to x."""
    width = 2 * cos.shape[-1]
    even, odd = x[..., -width:].float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)
    return torch.cat((x[..., :-width], turned.to(x.dtype)), dim=-1)


def collapse(
    trunk_NSC: Tensor, pre_NS: Tensor, weight_C: Tensor, eps: float, quantise: bool
) -> tuple[Tensor, Tensor]:
    """Weighted sum of the streams, normed: the value itself and its FP8 rounding."""
    u = (pre_NS.unsqueeze(-1) * trunk_NSC.float()).sum(1).to(trunk_NSC.dtype)
    x = rms_norm(u, weight_C, eps)
    return x, fake_row32(x) if quantise else x


def mixes(
    trunk_NSC: Tensor, fn: Tensor, base: Tensor, scale: Tensor, eps: float, hc_eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Raw mHC mixes of one sublayer: pre [N, S], post [N, S], and the matrix logits [N, S, S]."""
    streams = trunk_NSC.shape[1]
    flat = trunk_NSC.flatten(1).float()
    z = (flat @ fn.T) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + eps)
    pre, post, matrix = z.split((streams, streams, streams * streams), dim=-1)
    base_pre, base_post, base_matrix = base.split((streams, streams, streams * streams))
    return (
        torch.sigmoid(pre * scale[0] + base_pre) + hc_eps,
        2.0 * torch.sigmoid(post * scale[1] + base_post),
        (matrix * scale[2] + base_matrix).unflatten(-1, (streams, streams)),
    )


def expand(
    trunk_NSC: Tensor, y_NC: Tensor, post_NS: Tensor, comb_NSS: Tensor, noise: Tensor, rate: Tensor
) -> Tensor:
    """New trunk: ``h'[n] = post[n] y + sum_m comb[m][n] h[m]``, with dropout on y."""
    y = drop(y_NC, noise, rate).float()
    # Written out, so that a compiler unrolls the sum over four streams.
    kept = (comb_NSS.unsqueeze(-1) * trunk_NSC.float().unsqueeze(2)).sum(1)
    return (post_NS.unsqueeze(-1) * y.unsqueeze(1) + kept).to(trunk_NSC.dtype)


def projections(
    xq_NC: Tensor, w: dict[str, Tensor], turn: tuple[Tensor, Tensor], eps: float, quantise: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention inputs of a layer.

    Returns:
        Rotated queries [N, H, D]; rotated, unquantised key/value [N, D]; the FP8 rounding of the
        low-rank query [N, Q], which the indexer also reads.
    """
    cos, sin = turn
    low = rms_norm(xq_NC @ w["wq_a"].T, w["q_norm"], eps)
    low = fake_row32(low) if quantise else low
    q = (low @ w["wq_b"].T).unflatten(-1, (w["sink"].shape[0], -1))
    kv = rms_norm(xq_NC @ w["wkv"].T, w["kv_norm"], eps)
    return rotate(q, cos.unsqueeze(1), sin.unsqueeze(1)), rotate(kv, cos, sin), low


def output(
    o_NHD: Tensor, w: dict[str, Tensor], turn: tuple[Tensor, Tensor], groups: int, quantise: bool
) -> Tensor:
    """Undo the rotation at the query position, then the grouped output projection [N, C]."""
    cos, sin = turn
    o = rotate(o_NHD, cos.unsqueeze(1), -sin.unsqueeze(1)).flatten(1)
    o = fake_row32(o) if quantise else o
    o = o.unflatten(-1, (groups, -1))
    wo_a = w["wo_a"].unflatten(0, (groups, -1))
    low = torch.einsum("ngi,goi->ngo", o, wo_a).flatten(1)
    return (fake_row32(low) if quantise else low) @ w["wo_b"].T


def _activation(g: Tensor, u: Tensor, limit: float) -> Tensor:
    return F.silu(g.float().clamp(max=limit)) * u.float().clamp(-limit, limit)


def _route(x: Tensor, gate: Tensor, bias: Tensor, top: int, scaling: float) -> Tensor:
    """Routing weight of every expert [N, E], 0 where not chosen; ties go to the lower index."""
    score = F.softplus(x.float() @ gate.float().T).sqrt()
    biased = score.detach() + bias
    order = torch.arange(bias.shape[0], device=x.device)
    other, own = biased.unsqueeze(-2), biased.unsqueeze(-1)
    before = (other > own) | ((other == own) & (order < order.unsqueeze(-1)))
    chosen = before.sum(-1) < top
    kept = score * chosen
    return kept / (kept.sum(-1, keepdim=True) + 1e-20) * scaling


def experts(
    x_NC: Tensor, xq_NC: Tensor, w: dict[str, Tensor], top: int, scaling: float, limit: float,
    quantise: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Mixture of experts plus the shared expert.

    All experts run as one wide layer; an unchosen expert has routing weight 0, which gives the
    same sum as skipping it.

    Returns:
        Output [N, C]; number of tokens for each expert [E].
    """
    dtype = x_NC.dtype
    route = _route(x_NC, w["gate"], w["gate_bias"], top, scaling)
    act = _activation(xq_NC @ w["w1"].flatten(0, 1).T, xq_NC @ w["w3"].flatten(0, 1).T, limit)
    act = (act.unflatten(-1, (route.shape[-1], -1)) * route.unsqueeze(-1)).flatten(1).to(dtype)
    act = fake_row32(act) if quantise else act
    routed = act @ w["w2"].transpose(0, 1).flatten(1).T
    same = _activation(xq_NC @ w["shared_w1"].T, xq_NC @ w["shared_w3"].T, limit).to(dtype)
    same = fake_row32(same) if quantise else same
    shared = same @ w["shared_w2"].T
    return (routed.float() + shared.float()).to(dtype), (route > 0).float().sum(0)


def engram(
    trunk_NSC: Tensor, rows_NKD: Tensor, w: dict[str, Tensor], noise_NK1: Tensor, rate: Tensor,
    eps: float, quantise: bool,
) -> Tensor:  # fmt: skip
    """Add the gated n-gram memory to every stream, with dropout of whole table rows."""
    streams, width = trunk_NSC.shape[1:]
    e = fake_row32(rows_NKD) if quantise else rows_NKD
    e = drop(e, noise_NK1, rate).flatten(1).to(trunk_NSC.dtype)
    parts = (e @ w["wkv"].T).unflatten(-1, (streams + 1, width)).float()
    key, value = parts[:, :streams], parts[:, streams:]
    h = trunk_NSC.float()
    weight = w["q"].float() * w["k"].float()
    dot = (h * weight * key).sum(-1) * width**-0.5
    dot = dot * torch.rsqrt(h.square().mean(-1) + eps) * torch.rsqrt(key.square().mean(-1) + eps)
    gate = torch.sigmoid(torch.sign(dot) * dot.abs().clamp(min=1e-6).sqrt())
    return (h + gate.unsqueeze(-1) * value).to(trunk_NSC.dtype)
