"""What do masks, biases and penalties make of a row of logits?

A pure function of the row: the same wherever the row runs, in any company. Samplers that have
nothing faster call it with logits in the precision that they compute in.

Shapes: R rows, V vocabulary, W mask words, N listed tokens.
"""

from __future__ import annotations

import torch

from deepinfer_core.interfaces.sampler import LogitsRules, SamplerRows

__all__ = ["adjusted"]

_MASK_BITS = 32


def adjusted(logits_RV: torch.Tensor, rows: SamplerRows) -> torch.Tensor:
    """Apply, in this order: mask, bias, repetition, frequency and presence penalty.

    Args:
        logits_RV: fp32 or fp64, read only.
        rows: settings of the same rows.

    Returns:
        New logits of the same dtype, or ``logits_RV`` itself if nothing is to be changed; -inf
        where a token may not be drawn.
    """
    found_RV = logits_RV
    if rows.allowed_RW is not None:
        allowed_RV = _unpack(rows.allowed_RW, logits_RV.shape[1])
        found_RV = found_RV.masked_fill(~allowed_RV, -torch.inf)
    return found_RV if rows.rules is None else _apply(found_RV, rows.rules)


def _apply(logits_RV: torch.Tensor, rules: LogitsRules) -> torch.Tensor:
    vocabulary = logits_RV.shape[1]
    # Padding works on a column of its own behind the vocabulary, which is dropped in the end.
    work_RV = torch.nn.functional.pad(logits_RV, (0, 1))
    place_RB = _places(rules.bias_token_RB, vocabulary)
    biased_RB = work_RV.gather(1, place_RB) + rules.bias_RB.to(work_RV.dtype)
    work_RV.scatter_(1, place_RB, biased_RB)

    place_RN = _places(rules.seen_token_RN, vocabulary)
    count_RN = rules.output_count_RN.to(work_RV.dtype)
    repetition_R, frequency_R, presence_R = (
        value_R.to(work_RV.dtype)[:, None]
        for value_R in (rules.repetition_R, rules.frequency_R, rules.presence_R)
    )
    seen_RN = work_RV.gather(1, place_RN)
    seen_RN = torch.where(seen_RN > 0, seen_RN / repetition_R, seen_RN * repetition_R)
    seen_RN = seen_RN - count_RN * frequency_R
    seen_RN = seen_RN - (count_RN > 0) * presence_R
    return work_RV.scatter_(1, place_RN, seen_RN)[:, :vocabulary].contiguous()


def _places(token_RN: torch.Tensor, vocabulary: int) -> torch.Tensor:
    return token_RN.masked_fill(token_RN < 0, vocabulary)


def _unpack(allowed_RW: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """Bits of the words in order, bool [R, V]."""
    bit_X = torch.arange(_MASK_BITS, dtype=torch.int32, device=allowed_RW.device)
    bits_RWX = (allowed_RW[..., None] >> bit_X) & 1
    return bits_RWX.flatten(1)[:, :vocabulary].to(torch.bool)
