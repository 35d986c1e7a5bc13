"""Which logits and settings can the sampler's kernels take as they are?

Shapes: R rows, V vocabulary.
"""

from __future__ import annotations

import torch
from deepinfer_core.errors import NotSupported

from deepinfer_nvidia.sampler.workspace import TileLangSamplerPlan

__all__ = ["NAMES", "check", "columns"]

NAMES = {torch.float32: "float32", torch.float64: "float64"}
"""What specs call the dtypes of logits."""

_ACCESS_BYTES, _VECTOR = 16, 4


def columns(rows: object, *names: str) -> dict[str, torch.Tensor]:
    """Settings by name, without gaps."""
    return {name: getattr(rows, name).contiguous() for name in names}


def check(logits_RV: torch.Tensor, plan: TileLangSamplerPlan) -> None:
    """Refuse logits that the kernels would read wrongly.

    Raises:
        NotSupported: another dtype or shape than planned, or gaps between or before numbers.
    """
    shape = (min(logits_RV.shape[0], plan.max_rows), plan.spec.vocabulary)
    if tuple(logits_RV.shape) != shape or logits_RV.dtype not in NAMES:
        raise NotSupported(
            f"found {logits_RV.dtype} logits of shape {tuple(logits_RV.shape)}; the plan has "
            f"{plan.max_rows} rows of {plan.spec.vocabulary} fp32 or fp64 logits",
            hint="plan for what is to be run",
        )
    is_vectored = logits_RV.shape[1] % _VECTOR == 0
    if not logits_RV.is_contiguous() or (is_vectored and logits_RV.data_ptr() % _ACCESS_BYTES):
        raise NotSupported(
            f"found logits with strides {logits_RV.stride()} at an address that is "
            f"{logits_RV.data_ptr() % _ACCESS_BYTES} bytes behind a multiple of {_ACCESS_BYTES}",
            hint="copy them to memory without gaps",
        )
