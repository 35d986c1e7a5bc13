"""What do attention, the compressor and the indexer compute?"""

import math

import torch

__all__ = ["attend", "blend_pair", "index_scores", "pool_blocks", "top_entries"]


def attend(
    q_ND: torch.Tensor, key_LD: torch.Tensor, sink_N: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend from one row to the keys it lists.

    Returns:
        fp64 [N, D], and fp64 [N] log of the sum over keys without the sink.
    """
    heads, width = q_ND.shape
    out_ND, lse_N = torch.zeros(heads, width, dtype=torch.float64), torch.empty(heads).double()
    for head in range(heads):
        if key_LD.shape[0] == 0:
            lse_N[head] = math.inf
            continue
        score_L = scale * (key_LD.double() @ q_ND[head].double())
        largest = max(float(score_L.max()), float(sink_N[head]))
        weight_L = torch.exp(score_L - largest)
        total = weight_L.sum() + math.exp(float(sink_N[head]) - largest)
        out_ND[head] = (weight_L[:, None] * key_LD.double()).sum(0) / total
        lse_N[head] = torch.logsumexp(score_L, 0)
    return out_ND, lse_N


def blend_pair(values_2D: torch.Tensor, gates_2D: torch.Tensor) -> torch.Tensor:
    """Weigh two values, channel by channel, with the softmax of two gates; fp64 [D]."""
    weights_2D = torch.softmax(gates_2D.double(), 0)
    return (weights_2D * values_2D.double()).sum(0)


def index_scores(
    query_HJ: torch.Tensor, weight_H: torch.Tensor, key_SJ: torch.Tensor
) -> torch.Tensor:
    """Sum over heads of ``weight * relu(query . key)`` for each key, fp64 [S]."""
    score_S = torch.zeros(key_SJ.shape[0], dtype=torch.float64)
    for query_J, weight in zip(query_HJ.double(), weight_H.double(), strict=True):
        score_S += weight * (key_SJ.double() @ query_J).clamp(min=0)
    return score_S


def top_entries(scores: list[float], count: int) -> list[int]:
    """Ascending indices of the best entries; ties to the lower index; never one at -inf."""
    present = [entry for entry, score in enumerate(scores) if score > -math.inf]
    return sorted(sorted(present, key=lambda entry: (-scores[entry], entry))[:count])


def pool_blocks(scores: list[float], visible: int, block: int, count: int) -> set[int]:
    """Blocks of the candidate pool, for one row."""
    if visible == 0:
        return set()
    last = (visible - 1) // block
    best = {b: max(scores[b * block : min((b + 1) * block, visible)]) for b in range(last + 1)}
    best[last] = math.inf
    return set(sorted(best, key=lambda b: (-best[b], b))[:count])
