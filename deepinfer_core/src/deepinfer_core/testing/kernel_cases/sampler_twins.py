"""What does each kernel of a sampler leave behind? Plain torch, fp64, the whole row at a time.

Probabilities, weights, orders and random numbers are those of ``reference.sampler``; what a kernel
passes on to the next one is made explicit.

Shapes: R rows, V vocabulary, S segments, G groups or chunks.
"""

from __future__ import annotations

import torch

from deepinfer_core.interfaces.operators.sampler import (
    CANDIDATES,
    CHUNK_TOKENS,
    OPEN_TOKENS,
    SEGMENT_TOKENS,
    SHORT_TOKENS,
)
from deepinfer_core.reference.laws import invert
from deepinfer_core.reference.random_numbers import FRESH_CASE, uniform_bits

__all__ = [
    "cut_rows",
    "draw_chunks",
    "kept_weights",
    "logarithms",
    "scan_logits",
    "truncate_draw",
    "weigh_chunks",
]

Tensors = dict[str, torch.Tensor]

_WEIGHT_ONE = 1 << 31
_GROUP_NEIGHBOURS, _GROUP_STRETCHES = 16, 8


def scan_logits(given: Tensors) -> Tensors:
    """Peaks and sums of segments, and peaks of groups."""
    x_RV = given["logits_RV"]
    bad_RV = x_RV.isnan() | (x_RV == torch.inf)
    x_RSX = _segments(x_RV.masked_fill(bad_RV, 0), -torch.inf)
    peak_RS, place_RS = _first_peaks(x_RSX)
    base_RSX = peak_RS.masked_fill(peak_RS == -torch.inf, 0)[..., None].double()
    distance_RSX = x_RSX.double() - base_RSX
    scale_R = _scale(given)
    scaled_RS = (distance_RSX * scale_R[:, None, None]).exp().sum(-1)
    first_S = torch.arange(peak_RS.shape[1], device=x_RV.device) * SEGMENT_TOKENS
    groups = (_GROUP_STRETCHES, -1, _GROUP_NEIGHBOURS)
    return {
        "peak_RS": peak_RS,
        "peak_token_RS": (first_S + place_RS).int(),
        "sum_RS": distance_RSX.exp().sum(-1),
        "scaled_sum_RS": scaled_RS.masked_fill((scale_R == 0)[:, None], 0),
        "bad_RS": _segments(bad_RV, False).any(-1).int(),
        "group_RG": _split(x_RSX, *groups).amax((2, 4)).flatten(1),
    }


def truncate_draw(given: Tensors) -> Tensors:
    """Draws from rows that candidates decide; zeros where there is nothing to report.

    Where they are cut, too; what other rows had stays.
    """
    law = _row_law(given)
    peak_R, total_R, invalid_R = law["peak_R"], law["total_R"], law["invalid_R"]
    is_greedy_R = given["temperature_R"] == 0
    inverse_R = 1 / given["temperature_R"].double().masked_fill(is_greedy_R, 1)
    logits_RV = given["logits_RV"].double()
    share_RV = ((logits_RV - peak_R[:, None]) * inverse_R[:, None]).exp()
    weight_RV = _weights(share_RV, total_R).masked_fill((given["top_p_R"] == 1)[:, None], 0)
    is_drawn_R = _is_decided(given, logits_RV, weight_RV, peak_R, inverse_R) & ~is_greedy_R

    kept_RV = _survivors(logits_RV, share_RV, weight_RV, given)
    kept_share_RV = share_RV * kept_RV
    kept_total_R = kept_share_RV.sum(-1)
    bits_R = uniform_bits(given["seed_R"], given["position_R"], FRESH_CASE)
    drawn_R = invert(_weights(kept_share_RV, kept_total_R), bits_R)
    best_R = _first_peaks(logits_RV)[1]
    token_R = torch.where(is_greedy_R, best_R, drawn_R)
    token_R = torch.where(given["forced_R"] >= 0, given["forced_R"], token_R)
    is_reported_R = (is_greedy_R | is_drawn_R) & ~invalid_R
    token_R = token_R.masked_fill(~is_reported_R, 0)
    log_R = _log_kept(logits_RV, peak_R, inverse_R, kept_total_R, kept_RV, token_R)
    log_R = torch.where(is_greedy_R, torch.where(token_R == best_R, 0.0, -torch.inf), log_R)
    raw_R = _at(given["raw_logits_RV"].double(), token_R) - law["log_total_R"]
    is_cut_R = is_drawn_R & ~invalid_R
    order_RV = logits_RV.sort(dim=-1, descending=True, stable=True).indices
    last_R = _at(order_RV, (kept_RV.sum(-1) - 1).clamp_min(0))
    cut = {
        "cut_value_R": _at(logits_RV, last_R),
        "cut_token_R": last_R.int(),
        "kept_total_R": kept_total_R,
    }
    return {name: torch.where(is_cut_R, value, given[name]) for name, value in cut.items()} | {
        "token_R": token_R,
        "logprob_R": raw_R.float().masked_fill(~is_reported_R, 0),
        "processed_logprob_R": log_R.float().masked_fill(~is_reported_R, 0),
        "invalid_R": invalid_R,
        "log_total_R": law["log_total_R"].masked_fill(invalid_R, 0),
        "peak_R": peak_R.masked_fill(invalid_R, 0),
        "total_R": total_R.masked_fill(invalid_R, 0),
        "pending_R": (~is_greedy_R & ~is_drawn_R & ~invalid_R).int(),
    }


def cut_rows(given: Tensors) -> Tensors:
    """The last survivor of top-k and top-p, and the sum of what survives with min-p."""
    logits_RV, share_RV = _shares(given)
    weight_RV = _weights(share_RV, given["total_R"].clamp_min(1))
    ordered = _survivors(logits_RV, share_RV, weight_RV, given, with_min_p=False)
    kept_RV = _survivors(logits_RV, share_RV, weight_RV, given)
    order_RV = logits_RV.sort(dim=-1, descending=True, stable=True).indices
    last_R = _at(order_RV, (ordered.sum(-1) - 1).clamp_min(0))
    is_whole_R = ordered.sum(-1) == (logits_RV > -torch.inf).sum(-1)
    # Everything survives: no cut, and the sum over all is the one that is known already.
    count = (given["top_k_R"] >= 0) & (given["top_k_R"] <= (logits_RV > -torch.inf).sum(-1))
    mass = (given["top_p_R"] < 1) & (weight_RV.sum(-1) > _limits(given["top_p_R"]))
    is_uncut_R = is_whole_R & ~count & ~mass
    found = {
        "cut_value_R": _at(logits_RV, last_R).masked_fill(is_uncut_R, -torch.inf),
        "cut_token_R": last_R.int().masked_fill(is_uncut_R, logits_RV.shape[1]),
        "kept_total_R": (share_RV * kept_RV).sum(-1),
    }
    return _where_pending(given, found)


def weigh_chunks(given: Tensors) -> Tensors:
    """Sums of the weights of survivors."""
    _, _, weight_RV = kept_weights(given)
    chunk_RG = _split(_segments(weight_RV, 0), -1, CHUNK_TOKENS).sum(-1).flatten(1)
    return _where_pending(given, {"chunk_RG": chunk_RG})


def draw_chunks(given: Tensors) -> Tensors:
    """Tokens and their log-probabilities."""
    weight_RV = kept_weights(given)[2]
    is_pending_R = given["pending_R"] != 0
    bits_R = uniform_bits(given["seed_R"], given["position_R"], FRESH_CASE)
    token_R = invert(weight_RV.masked_fill(~is_pending_R[:, None], 1), bits_R)
    token_R = torch.where(given["forced_R"] >= 0, given["forced_R"], token_R)
    return _where_pending(given, {"token_R": token_R, **logarithms(given, token_R)})


def logarithms(given: Tensors, token_R: torch.Tensor) -> Tensors:
    """Log-probabilities of tokens in rows that are cut."""
    logits_RV, kept_RV, _ = kept_weights(given)
    inverse_R = 1 / given["temperature_R"].double()
    kept_total_R = given["kept_total_R"]
    log_R = _log_kept(logits_RV, given["peak_R"], inverse_R, kept_total_R, kept_RV, token_R)
    raw_R = _at(given["raw_logits_RV"].double(), token_R) - given["log_total_R"]
    return {"logprob_R": raw_R.float(), "processed_logprob_R": log_R.float()}


def _row_law(given: Tensors) -> Tensors:
    """Peaks and sums of whole rows."""
    temperature_R = given["temperature_R"].double()
    inverse_R = 1 / temperature_R.masked_fill(temperature_R == 0, 1)
    peak_R = given["peak_RS"].double().amax(-1)
    raw_total_R = _total(given["raw_peak_RS"], given["raw_sum_RS"], torch.ones_like(inverse_R))
    return {
        "peak_R": peak_R,
        "total_R": _total(given["peak_RS"], given["scaled_sum_RS"], inverse_R),
        "invalid_R": given["raw_bad_RS"].bool().any(-1) | (peak_R == -torch.inf),
        "log_total_R": given["raw_peak_RS"].double().amax(-1) + raw_total_R.log(),
    }


def _is_decided(
    given: Tensors,
    logits_RV: torch.Tensor,
    weight_RV: torch.Tensor,
    peak_R: torch.Tensor,
    inverse_R: torch.Tensor,
) -> torch.Tensor:
    """Whether the candidates of a row tell where its truncation ends."""
    top_p_R, top_k_R, min_p_R = given["top_p_R"], given["top_k_R"], given["min_p_R"].double()
    wanted_R = torch.where(top_k_R >= 0, top_k_R.clamp(1, SHORT_TOKENS), OPEN_TOKENS)
    is_open_R = (top_k_R < 0) & (top_p_R == 1) & (min_p_R == 0)
    wanted_R = wanted_R.masked_fill(is_open_R | (given["temperature_R"] == 0), 0)
    threshold_R = _thresholds(given["group_RG"].double(), wanted_R)
    is_candidate_RV = (logits_RV >= threshold_R[:, None]) & (logits_RV > -torch.inf)
    count_R = is_candidate_RV.sum(-1)
    decided_R = (threshold_R == -torch.inf) & (wanted_R > 0)
    decided_R |= (top_k_R >= 0) & (count_R >= top_k_R) & (wanted_R > 0)
    found_R = (weight_RV * is_candidate_RV).sum(-1)
    decided_R |= (top_p_R < 1) & (found_R > _limits(top_p_R))
    decided_R |= ((threshold_R - peak_R) * inverse_R).exp() < min_p_R
    return decided_R & (count_R <= CANDIDATES)


def _segments(x_RV: torch.Tensor, filler: float) -> torch.Tensor:
    """[R, S, SEGMENT_TOKENS]."""
    missing = -x_RV.shape[1] % SEGMENT_TOKENS
    padded_RV = torch.nn.functional.pad(x_RV, (0, missing), value=filler)
    return _split(padded_RV, -1, SEGMENT_TOKENS)


def _split(x: torch.Tensor, *extents: int) -> torch.Tensor:
    """The last axis as several."""
    return x.reshape(*x.shape[:-1], *extents)


def _first_peaks(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest of the last axis, and where it is first."""
    peak = x.amax(-1)
    return peak, (x == peak[..., None]).int().argmax(-1)


def _scale(given: Tensors) -> torch.Tensor:
    temperature_R, top_k_R = given["temperature_R"], given["top_k_R"]
    is_short_R = (top_k_R >= 0) & (top_k_R <= SHORT_TOKENS) & (given["top_p_R"] == 1)
    is_idle_R = is_short_R | (temperature_R == 0)
    inverse_R = 1 / temperature_R.double().masked_fill(is_idle_R, 1)
    return inverse_R.masked_fill(is_idle_R, 0)


def _total(peak_RS: torch.Tensor, sum_RS: torch.Tensor, inverse_R: torch.Tensor) -> torch.Tensor:
    distance_RS = peak_RS.double() - peak_RS.double().amax(-1, keepdim=True)
    return (sum_RS * (distance_RS * inverse_R[:, None]).exp()).sum(-1)


def _weights(share_RV: torch.Tensor, total_R: torch.Tensor) -> torch.Tensor:
    return (share_RV / total_R[:, None] * _WEIGHT_ONE).floor().nan_to_num(0, 0, 0).long()


def _limits(top_p_R: torch.Tensor) -> torch.Tensor:
    return (top_p_R.double() * _WEIGHT_ONE).floor().long()


def _thresholds(group_RG: torch.Tensor, wanted_R: torch.Tensor) -> torch.Tensor:
    """The peak of the pair of groups that makes enough; infinity where none is wanted."""
    best_RG = _split(group_RG, -1, 2).amax(-1).sort(dim=-1, descending=True).values
    place_R = (wanted_R - 1).clamp(0, best_RG.shape[1] - 1)
    found_R = _at(best_RG, place_R).masked_fill(wanted_R > best_RG.shape[1], -torch.inf)
    return found_R.masked_fill(wanted_R == 0, torch.inf)


def _survivors(
    logits_RV: torch.Tensor,
    share_RV: torch.Tensor,
    weight_RV: torch.Tensor,
    given: Tensors,
    *,
    with_min_p: bool = True,
) -> torch.Tensor:
    """Whether each token passes."""
    order_RV = logits_RV.sort(dim=-1, descending=True, stable=True).indices
    ordered_RV = weight_RV.gather(1, order_RV)
    before_RV = ordered_RV.cumsum(-1) - ordered_RV
    top_k_R, top_p_R = given["top_k_R"], given["top_p_R"]
    passes_RV = (before_RV <= _limits(top_p_R)[:, None]) | (top_p_R == 1)[:, None]
    rank_V = torch.arange(logits_RV.shape[1], device=logits_RV.device)
    passes_RV &= (rank_V < top_k_R[:, None]) | (top_k_R < 0)[:, None]
    kept_RV = torch.empty_like(passes_RV).scatter_(1, order_RV, passes_RV)
    if with_min_p:
        kept_RV &= share_RV >= given["min_p_R"].double()[:, None]
    return kept_RV & (logits_RV > -torch.inf)


def _shares(given: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits, and powers of them relative to the peak."""
    logits_RV = given["logits_RV"].double()
    inverse_R = 1 / given["temperature_R"].double().clamp_min(1e-30)
    distance_RV = logits_RV - given["peak_R"][:, None]
    return logits_RV, (distance_RV * inverse_R[:, None]).exp()


def kept_weights(given: Tensors) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits, whether each survives the cut, and weights of survivors."""
    logits_RV, share_RV = _shares(given)
    value_R1, token_R1 = given["cut_value_R"][:, None], given["cut_token_R"][:, None]
    token_V = torch.arange(logits_RV.shape[1], device=logits_RV.device)
    kept_RV = (logits_RV > value_R1) | ((logits_RV == value_R1) & (token_V <= token_R1))
    kept_RV &= (logits_RV > -torch.inf) & (share_RV >= given["min_p_R"].double()[:, None])
    return logits_RV, kept_RV, _weights(share_RV * kept_RV, given["kept_total_R"])


def _log_kept(
    logits_RV: torch.Tensor,
    peak_R: torch.Tensor,
    inverse_R: torch.Tensor,
    kept_total_R: torch.Tensor,
    kept_RV: torch.Tensor,
    token_R: torch.Tensor,
) -> torch.Tensor:
    log_R = (_at(logits_RV, token_R) - peak_R) * inverse_R - kept_total_R.log()
    return log_R.masked_fill(~_at(kept_RV, token_R), -torch.inf)


def _at(x_RV: torch.Tensor, place_R: torch.Tensor) -> torch.Tensor:
    return x_RV.gather(1, place_R.long()[:, None])[:, 0]


def _where_pending(given: Tensors, found: Tensors) -> Tensors:
    """Outputs of pending rows; the others stay as they are."""
    for name, value in found.items():
        is_pending = (given["pending_R"] != 0).view(-1, *[1] * (value.dim() - 1))
        found[name] = torch.where(is_pending, value, given[name])
    return found
