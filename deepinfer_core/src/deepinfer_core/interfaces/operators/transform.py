"""Which row-wise kernels may be asked for? ``interfaces.transform`` says what they compute."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RmsNormSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RmsNormSpec:
    """``Transform.rms_norm``; arguments x_TD, weight_D, out_TD.

    Attributes:
        width: D.
        dtype: name of the dtype of rows in and out.
        weight_dtype: name of the dtype of the weight.
        eps: added to the mean square.
    """

    width: int
    dtype: str
    weight_dtype: str
    eps: float
