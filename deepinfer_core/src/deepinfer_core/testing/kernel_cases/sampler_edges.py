"""On which rows does a sampler's kernel meet the very edge of a rule?

Probabilities are exact powers of two, so that a running weight is equal to the limit of top-p, a
share to that of min-p, and a draw's point to the end of a segment, a chunk or a token: seeds are
made for their bits. Other rows have enough segments for candidates to be few of many groups.

Shapes: R rows, V vocabulary.
"""

from __future__ import annotations

import torch

from deepinfer_core.interfaces.operators.sampler import CHUNK_TOKENS, SEGMENT_TOKENS
from deepinfer_core.testing.kernel_cases.case import Tensors
from deepinfer_core.testing.kernel_cases.sampler_rows import (
    TRUE_VOCABULARY,
    SampleShape,
    Setting,
)

__all__ = ["EDGES", "FEW_A_PAIR"]

_MASK = (1 << 64) - 1
_GOLDEN, _FIRST_MIX, _SECOND_MIX = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_BITS = 53

_EQUAL: tuple[tuple[int, Setting], ...] = (
    # How many tokens are equal, the others being -inf; settings as of other rows.
    (1024, (1.0, 1.0, -1, 0.0, -1)),
    (1024, (1.0, 1.0, -1, 0.0, -1)),
    (1024, (1.0, 0.5, -1, 0.0, -1)),
    (1024, (1.0, 1.0, -1, 1.0, -1)),
    (1024, (1.0, 1.0, 512, 0.0, -1)),
    (1024, (1.0, 1.0, -1, 0.0, 0)),
    (512, (1.0, 0.25, -1, 0.0, -1)),
    (8, (1.0, 1.0, 8, 0.0, -1)),
    (4, (1.0, 0.5, -1, 0.0, -1)),
    (2, (1.0, 0.5, -1, 0.0, -1)),
    (2, (0.0, 1.0, -1, 0.0, 3)),
    (1, (1.0, 0.5, 1, 1.0, -1)),
    (1024, (1.0, 1.0, 2000, 0.0, -1)),
    (1024, (1.0, 1.0, -1, 0.0, -1)),
    (1024, (1.0, 1.0, -1, 0.0, -1)),
    (1024, (1.0, 1.0, 300, 0.0, -1)),
    (1024, (1.0, 1.0, -1, 0.5, 0)),
    (1024, (1.0, 0.25, 512, 0.0, -1)),
    (8800, (1.0, 0.96875, -1, 0.0, -1)),
    (1024, (1.0, 1.0, -1, 0.0, -1)),
    (1024, (0.0, 1.0, -1, 0.0, 0)),
    (2, (0.0, 1.0, -1, 0.0, -1)),
    (8800, (1.0, 0.9375, 8500, 0.0, -1)),
)
_SEGMENT_END, _CHUNK_END, _LATE, _UNLIKELY, _HALF, _GREEDY = 0, 1, 3, 5, 9, 10
_FIRST, _LAST, _BEHIND, _BELOW, _BAD, _FORCED, _PEAK, _ALL = 13, 14, 15, 16, 19, 20, 21, 22

_WIDE: tuple[Setting, ...] = (
    (0.375, 0.875, -1, 0.0, -1),
    (0.25, 1.0, -1, 0.125, -1),
    (1.0, 0.96875, 200, 0.0, -1),
    (1.0, 1.0, -1, 0.0, -1),
    (2.0, 0.9375, 700, 0.015625, 30_000),
    (1.0, 1.0, -1, 1.0, -1),
    # Candidates are few, and not enough: for top-p, for min-p; for top-k they are.
    (1.0, 0.9375, -1, 0.0, -1),
    (1.0, 1.0, -1, 1e-4, -1),
    (1.0, 1.0, 100, 0.0, -1),
)


def _few_powers(given: Tensors, generator: torch.Generator) -> None:
    """Tokens of equal probability, spread over two segments."""
    logits_RV = given["logits_RV"]
    vocabulary = logits_RV.shape[1]
    for row, (count, _) in enumerate(_EQUAL):
        # In one row the equal tokens begin late.
        start = 2000 if row == _LATE else 0
        place_V = start + torch.randperm(vocabulary - start, generator=generator)
        if count == 1:
            place_V[0] = 17 * 512 - 1  # the last of 512 threads, or of fewer, reads it
        logits_RV[row] = -torch.inf
        logits_RV[row, place_V[:count]] = 2.0 * (row % 3 - 1)
    _place_ends(logits_RV)
    some_RV = logits_RV > -torch.inf
    given["forced_R"][_GREEDY] = some_RV[_GREEDY].int().argmax()
    logits_RV[_UNLIKELY, 0] = -torch.inf
    ends = {
        _SEGMENT_END: some_RV[_SEGMENT_END, :SEGMENT_TOKENS].sum() / 1024,
        _CHUNK_END: some_RV[_CHUNK_END, : 9 * CHUNK_TOKENS].sum() / 1024,
        _HALF: torch.tensor(0.5),
        _FIRST: torch.tensor(0.0),
    }
    for row, share in ends.items():
        given["position_R"][row] = 0
        given["seed_R"][row] = _seed_of(int(share.item() * (1 << _BITS)))
    for row in (_LAST, _BEHIND):
        given["position_R"][row] = 0
        given["seed_R"][row] = _seed_of((1 << _BITS) - 1)


def _place_ends(logits_RV: torch.Tensor) -> None:
    """Tokens that must be at a certain place: of a row, of a segment, of a chunk."""
    logits_RV[_GREEDY, -1] = logits_RV[_GREEDY].amax()
    logits_RV[_FIRST, 0] = logits_RV[_FIRST].amax()
    # Drawn: the last token of the last chunk of a segment.
    logits_RV[_LAST, SEGMENT_TOKENS - 1] = logits_RV[_LAST].amax()
    logits_RV[_LAST, SEGMENT_TOKENS:] = -torch.inf
    # Drawn: a better token, behind equal ones of its chunk that the cut leaves out.
    equal = logits_RV[_BEHIND].amax()
    logits_RV[_BEHIND, :1024], logits_RV[_BEHIND, 1024:] = equal, -torch.inf
    logits_RV[_BEHIND, 3 * CHUNK_TOKENS - 1] = equal + 1
    # Not a number, where a thread looks last; counts as 0, which is the best.
    logits_RV[_BAD] -= 1
    logits_RV[_BAD, SEGMENT_TOKENS - 1] = torch.nan
    # Forced: a token that min-p alone leaves out, and one that is not the likeliest.
    logits_RV[_BELOW, 0] = logits_RV[_BELOW].amax() - 2
    logits_RV[_FORCED, 0] = logits_RV[_FORCED].amax() - 2
    # The one best token of a segment, where a thread looks last; and of a row whose others are too
    # many equal ones to be held.
    logits_RV[_PEAK, SEGMENT_TOKENS - 1] = logits_RV[_PEAK].amax() + 1
    logits_RV[_ALL, -1] = logits_RV[_ALL].amax() + 1


def _few_a_pair(given: Tensors, _generator: torch.Generator) -> None:
    """One token, or two, in each pair of groups: the longest look finds too few for top-k, or more.

    A look is for 256 pairs, of 505.
    """
    for row, count in enumerate((1, 2)):
        row_V = given["logits_RV"][row]
        place_V = torch.arange(row_V.shape[0]) % SEGMENT_TOKENS
        row_V[(place_V % 32 >= count) | (place_V >= 1024)] = -torch.inf


def _seed_of(bits: int) -> int:
    """The seed whose draw at position 0 has these bits: the generator's steps, backwards."""
    z = bits << 64 - _BITS
    for mix, shift in ((_SECOND_MIX, 31), (_FIRST_MIX, 27), (1, 30)):
        z = z ^ z >> shift ^ z >> 2 * shift
        z = z * pow(mix, -1, 1 << 64) & _MASK
    z = z - _GOLDEN & _MASK
    return z - (1 << 64) if z >> 63 else z


EDGES = (
    SampleShape(
        name="powers",
        rows=len(_EQUAL),
        vocabulary=8800,
        settings=tuple(setting for _, setting in _EQUAL),
        change=_few_powers,
    ),
    SampleShape(name="wide", rows=len(_WIDE), vocabulary=33_001, settings=_WIDE),
)
FEW_A_PAIR = SampleShape(
    name="few-a-pair",
    rows=2,
    vocabulary=TRUE_VOCABULARY,
    settings=((1.0, 1.0, 264, 0.0, -1),),
    change=_few_a_pair,
)
"""For the kernel that looks for candidates, and no other."""
