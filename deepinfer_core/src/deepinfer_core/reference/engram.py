"""Which table rows does an n-gram select, and how does its value enter the residual streams?

Shapes: T rows, N n-gram size, C hash columns, S streams, D width.
"""

import torch

from deepinfer_core.interfaces.transform import EngramHash
from deepinfer_core.reference.arithmetic import accumulation_dtype, mean_square, row_sum, sigmoid

__all__ = ["gated_streams", "table_rows"]

_SMALLEST_DOT = 1e-6
"""Below this magnitude the square root of the dot product stops shrinking (model constant)."""


def table_rows(compressed_TN: torch.Tensor, spec: EngramHash) -> torch.Tensor:
    """Hash each row's n-grams, one table row a column, int64 [T, C].

    The hash of order n is the exclusive or of ``id * multiplier`` at distances 0 to n - 1. Ids and
    multipliers are small enough that no product leaves the positive int64 range.
    """
    place = compressed_TN.device
    products_TN = compressed_TN * spec.multiplier_N.to(place)
    hash_T = products_TN[:, 0]
    by_order = []
    for distance in range(1, products_TN.shape[1]):
        hash_T = hash_T ^ products_TN[:, distance]
        by_order.append(hash_T)
    hash_TC = torch.stack(by_order, 1)[:, spec.order_C.to(place) - 2]
    return hash_TC % spec.prime_C.to(place) + spec.offset_C.to(place)


def gated_streams(
    trunk_TSD: torch.Tensor,
    key_TSD: torch.Tensor,
    value_TD: torch.Tensor,
    query_weight_SD: torch.Tensor,
    key_weight_SD: torch.Tensor,
    image_T: torch.Tensor,
    norm_eps: float,
) -> torch.Tensor:
    """Add ``gate * value`` to every stream, in the accumulation dtype; image rows stay.

    A stream's gate is the sigmoid of the signed square root of the normalised product of trunk
    and key.
    """
    accumulate = accumulation_dtype(trunk_TSD.dtype)
    h, key, value_TD = (x.to(accumulate) for x in (trunk_TSD, key_TSD, value_TD))
    weight_SD = query_weight_SD.to(accumulate) * key_weight_SD.to(accumulate)
    dot_TS = row_sum(h * weight_SD * key)
    dot_TS *= torch.rsqrt(mean_square(h) + norm_eps)
    dot_TS *= torch.rsqrt(mean_square(key) + norm_eps) * h.shape[-1] ** -0.5
    root_TS = dot_TS.abs().clamp(min=_SMALLEST_DOT).sqrt() * dot_TS.sign()
    added_TSD = sigmoid(root_TS)[:, :, None] * value_TD[:, None]
    return h + added_TSD.masked_fill(image_T[:, None, None], 0)
