"""What do the row-wise operators compute?"""

import math

import torch

__all__ = [
    "choose_experts",
    "collapse",
    "engram_row",
    "engram_streams",
    "expand",
    "mixes",
    "rms_norm",
    "rotate",
    "swiglu",
]


def rms_norm(x_D: torch.Tensor, weight_D: torch.Tensor, eps: float) -> torch.Tensor:
    """Normalise one row."""
    x_D = x_D.double()
    return x_D / torch.sqrt((x_D**2).mean() + eps) * weight_D.double()


def rotate(x_D: torch.Tensor, angle_P: torch.Tensor) -> torch.Tensor:
    """Turn the last 2 * P channels of one vector, pair by pair, as complex numbers."""
    x_D, pairs = x_D.double().clone(), angle_P.shape[0]
    start = x_D.shape[0] - 2 * pairs
    for pair in range(pairs):
        first = start + 2 * pair
        turned = complex(x_D[first], x_D[first + 1]) * complex(
            math.cos(angle_P[pair]), math.sin(angle_P[pair])
        )
        x_D[first], x_D[first + 1] = turned.real, turned.imag
    return x_D


def mixes(
    trunk_SD: torch.Tensor,
    fn_MK: torch.Tensor,
    base_M: torch.Tensor,
    scale_3: torch.Tensor,
    iterations: int,
    eps: float,
    norm_eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Give pre [S], post [S] and comb [S, S] of one row."""
    streams = trunk_SD.shape[0]
    flat_K = trunk_SD.double().reshape(-1)
    z_M = fn_MK.double() @ flat_K / torch.sqrt((flat_K**2).mean() + norm_eps)
    scale, base_M = scale_3.double(), base_M.double()
    pre_S = torch.sigmoid(z_M[:streams] * scale[0] + base_M[:streams]) + eps
    middle = slice(streams, 2 * streams)
    post_S = 2 * torch.sigmoid(z_M[middle] * scale[1] + base_M[middle])
    logits = (z_M[2 * streams :] * scale[2] + base_M[2 * streams :]).reshape(streams, streams)
    comb = torch.softmax(logits, dim=1) + eps
    for iteration in range(iterations):
        if iteration > 0:
            for source in range(streams):
                comb[source] = comb[source] / (comb[source].sum() + eps)
        for target in range(streams):
            comb[:, target] = comb[:, target] / (comb[:, target].sum() + eps)
    return pre_S, post_S, comb


def collapse(trunk_SD: torch.Tensor, pre_S: torch.Tensor) -> torch.Tensor:
    """Sum the streams of one row."""
    return sum(
        (pre * h_D for pre, h_D in zip(pre_S.double(), trunk_SD.double(), strict=True)),
        torch.zeros(trunk_SD.shape[1], dtype=torch.float64),
    )


def expand(
    trunk_SD: torch.Tensor, y_D: torch.Tensor, post_S: torch.Tensor, comb_SS: torch.Tensor
) -> torch.Tensor:
    """Mix the streams of one row and add the sublayer's output."""
    out_SD = torch.zeros(trunk_SD.shape, dtype=torch.float64)
    for target in range(trunk_SD.shape[0]):
        out_SD[target] = post_S[target].double() * y_D.double()
        for source in range(trunk_SD.shape[0]):
            out_SD[target] += comb_SS[source, target].double() * trunk_SD[source].double()
    return out_SD


def choose_experts(
    logits: list[float], bias: list[float], scaling: float, count: int
) -> tuple[list[int], list[float]]:
    """Choose the experts of one row, and weigh them."""
    # log(1 + exp(x)) without overflow.
    scores = [math.sqrt(max(x, 0) + math.log1p(math.exp(-abs(x)))) for x in logits]
    biased = [score + extra for score, extra in zip(scores, bias, strict=True)]
    chosen = sorted(range(len(logits)), key=lambda e: (-biased[e], e))[:count]
    total = sum(scores[e] for e in chosen) + 1e-20
    return chosen, [scores[e] / total * scaling for e in chosen]


def swiglu(gate_I: torch.Tensor, up_I: torch.Tensor, route: float, limit: float) -> torch.Tensor:
    """Activate one row."""
    gate_I = gate_I.double().clamp(max=limit)
    up_I = up_I.double().clamp(-limit, limit)
    return gate_I * torch.sigmoid(gate_I) * up_I * route


def engram_row(ids: list[int], multipliers: list[int], order: int, prime: int, offset: int) -> int:
    """Hash one n-gram, in Python's own integers."""
    mixed = 0
    for distance in range(order):
        mixed ^= ids[distance] * multipliers[distance]
    return mixed % prime + offset


def engram_streams(
    trunk_SD: torch.Tensor,
    key_SD: torch.Tensor,
    value_D: torch.Tensor,
    query_weight_SD: torch.Tensor,
    key_weight_SD: torch.Tensor,
    norm_eps: float,
) -> torch.Tensor:
    """Add the gated value to every stream of one row."""
    out_SD = trunk_SD.double().clone()
    width = trunk_SD.shape[1]
    for stream in range(trunk_SD.shape[0]):
        h_D, key_D = trunk_SD[stream].double(), key_SD[stream].double()
        weight_D = query_weight_SD[stream].double() * key_weight_SD[stream].double()
        dot = float((h_D * weight_D * key_D).sum()) / math.sqrt(width)
        dot /= math.sqrt(float((h_D**2).mean()) + norm_eps)
        dot /= math.sqrt(float((key_D**2).mean()) + norm_eps)
        root = math.copysign(math.sqrt(max(abs(dot), 1e-6)), dot) if dot else 0.0
        out_SD[stream] += value_D.double() / (1 + math.exp(-root))
    return out_SD
