"""Which laws show where a token is drawn in place of a rejected draft?

Laws of a few tokens at the edges of chunks and segments, each of weight 1, so that every point of
their sum is met, and drafts that they do not hold: certain ones, which are rejected, and one whose
own law is the row's, which is accepted with a probability of zero.

Shapes: R rows, V vocabulary.
"""

from __future__ import annotations

import torch

from deepinfer_core.interfaces.operators.sampler import CHUNK_TOKENS, SEGMENT_TOKENS
from deepinfer_core.testing.kernel_cases.case import Tensors
from deepinfer_core.testing.kernel_cases.sampler_rows import SampleShape

__all__ = ["RESIDUAL", "residual_laws"]

_VOCABULARY = SEGMENT_TOKENS + CHUNK_TOKENS // 2
_LAST = SEGMENT_TOKENS - 1
_DRAFT = 77

_KEPT: tuple[tuple[int, ...], ...] = (
    (0, 1),
    (CHUNK_TOKENS - 1,),
    (CHUNK_TOKENS, CHUNK_TOKENS + 1),
    (5, CHUNK_TOKENS + 5),
    (_LAST,),
    (_LAST, SEGMENT_TOKENS),
    (3, 4, _VOCABULARY - 1),
    (0, 1, _LAST, SEGMENT_TOKENS, _VOCABULARY - 1),
)
"""Tokens of a law."""

_TURNS = 4
"""Rows of each, with numbers of their own."""

RESIDUAL = SampleShape(
    name="residual",
    rows=_TURNS * len(_KEPT),
    vocabulary=_VOCABULARY,
    settings=((0.0, 1.0, -1, 0.0, -1), (1.0, 1.0, -1, 0.0, -1), (1.0, 1.0, 3, 0.0, -1)),
)


def residual_laws(given: Tensors) -> Tensors:
    """Put these laws and drafts in the place of those that rows have.

    Args:
        given: arguments of ``sampler_verify_drafts`` for ``RESIDUAL``.
    """
    own_RV = torch.zeros_like(given["own_law_RV"])
    for row in range(RESIDUAL.rows):
        own_RV[row, list(_KEPT[row // _TURNS])] = 1
    law_row_R = torch.full_like(given["law_row_R"], -1)
    alike_R = torch.arange(0, RESIDUAL.rows, _TURNS)
    law_row_R[alike_R] = given["law_row_R"][alike_R]
    given["law_PV"][law_row_R[alike_R]] = own_RV[alike_R]
    draft_R = torch.full_like(given["draft_R"], _DRAFT)
    return given | {"own_law_RV": own_RV, "law_row_R": law_row_R, "draft_R": draft_R}
