"""How does a token id become a row, and where do image rows come in?

Shapes: T rows, D width, V vocabulary.
"""

import torch

from deepinfer_core.model.engram import gather_rows
from deepinfer_core.numeric import QuantTensor

__all__ = ["embed"]


def embed(
    table: QuantTensor,
    token_T: torch.Tensor,
    dtype: torch.dtype,
    *,
    image_T: torch.Tensor | None = None,
    embedding_TD: torch.Tensor | None = None,
) -> torch.Tensor:
    """Look up embeddings.

    Args:
        table: [V, D], plain.
        token_T: int64 ids; ids outside the vocabulary embed to zero.
        dtype: of the result.
        image_T: rows that ``embedding_TD`` replaces.
        embedding_TD: image rows; None if there are none.

    Returns:
        [T, D], new memory.
    """
    is_known_T = (token_T >= 0) & (token_T < table.shape[0])
    found_TD = gather_rows(table, token_T.where(is_known_T, 0), dtype)
    rows_TD = found_TD.where(is_known_T[:, None], 0)
    if embedding_TD is None or image_T is None:
        return rows_TD
    return embedding_TD.to(dtype).where(image_T[:, None], rows_TD)
