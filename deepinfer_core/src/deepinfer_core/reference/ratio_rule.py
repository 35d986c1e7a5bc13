"""Which token follows when a draft is accepted with probability min(1, p / g)?

Both laws are whole numbers: v with the sum T for p, w with the sum W for g. Then

* a draft d is accepted if ``u * w[d] * T < v[d] * W``, u being uniform;
* else the token is drawn from ``max(v * W - w * T, 0)``, whose sum is zero only where the laws are
  the same, and then every draft is accepted.

All of that is exact in int64, except u, which has 53 bits, and the sums of the second law, of which
36 bits are kept, so that a token's probability in it is off by at most 2^-35. So the emitted law is
p itself: a token x comes with probability min(p, g)(x) + R * max(p - g, 0)(x) / R, where R is the
probability of a rejection, the sum of max(p - g, 0).

Source: speculative sampling (Leviathan, Kalman and Matias, 2023; Chen et al., 2023).

Shapes: R rows, V vocabulary, P rows of kept laws.
"""

from __future__ import annotations

import torch

from deepinfer_core.interfaces.sampler import DraftedRows
from deepinfer_core.reference.laws import WEIGHT_ONE, invert
from deepinfer_core.reference.random_numbers import UNIFORM_BITS

__all__ = ["keep_laws", "ratio_rule"]

_SUM_BITS = 36


def keep_laws(weight_RV: torch.Tensor) -> torch.Tensor:
    """Laws as int32, to be kept; certainty is one less, which is the same law."""
    return weight_RV.clamp_max(WEIGHT_ONE - 1).to(torch.int32)


def ratio_rule(
    weight_RV: torch.Tensor,
    drafted: DraftedRows,
    acceptance_bits_R: torch.Tensor,
    residual_bits_R: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Verify the drafts of rows.

    Args:
        weight_RV: int64 laws of the rows, sums up to 2^31.
        drafted: the drafts; a row without one is not accepted, and its token means nothing.
        acceptance_bits_R: int64 below 2^53, for the test of each draft.
        residual_bits_R: int64 below 2^53, for the tokens that replace drafts.

    Returns:
        Whether each draft is accepted; the token; the sum of min(p, g), fp64.
    """
    has_draft_R = drafted.draft_R >= 0
    draft_R1 = drafted.draft_R.clamp_min(0)[:, None]
    law_RV = _laws(weight_RV, drafted, draft_R1)
    total_R, law_total_R = weight_RV.sum(-1), law_RV.sum(-1)
    own_RV = weight_RV * law_total_R[:, None]
    other_RV = law_RV * total_R[:, None]
    residual_RV = (own_RV - other_RV).clamp_min_(0)
    rejection_R = residual_RV.sum(-1)

    own_R, other_R = own_RV.gather(1, draft_R1)[:, 0], other_RV.gather(1, draft_R1)[:, 0]
    u_R = acceptance_bits_R.to(torch.float64) * 2.0**-UNIFORM_BITS
    accepted_R = (u_R * other_R < own_R.to(torch.float64)) | (rejection_R == 0)
    accepted_R &= has_draft_R

    exponent_R = torch.frexp(rejection_R.to(torch.float64)).exponent
    residual_RV >>= (exponent_R - _SUM_BITS).clamp_min(0)[:, None]
    residual_RV[rejection_R == 0] = 1
    replaced_R = invert(residual_RV, residual_bits_R)
    token_R = torch.where(accepted_R, drafted.draft_R, replaced_R)
    overlap_R = 1 - rejection_R / (total_R.to(torch.float64) * law_total_R)
    return accepted_R, token_R, torch.where(has_draft_R, overlap_R, 0)


def _laws(weight_RV: torch.Tensor, drafted: DraftedRows, draft_R1: torch.Tensor) -> torch.Tensor:
    """The law of each draft, int64; of a certain one, and of a row without one, a single 1."""
    law_RV = torch.zeros_like(weight_RV).scatter_(1, draft_R1, 1)
    if drafted.law_PV is not None:
        kept_RV = drafted.law_PV[drafted.law_row_R.clamp_min(0)].to(torch.int64)
        law_RV = torch.where((drafted.law_row_R >= 0)[:, None], kept_RV, law_RV)
    return law_RV
