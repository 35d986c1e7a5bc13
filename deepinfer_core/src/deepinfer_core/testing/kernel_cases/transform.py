"""Which inputs do the row-wise kernels get?

Widths are those of the model and a smaller one; rows 1 and 7, whatever a block holds.

Shapes: T rows, D width.
"""

from __future__ import annotations

import torch

from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.operators.transform import RmsNormSpec
from deepinfer_core.reference.transform import ReferenceTransform
from deepinfer_core.testing.kernel_cases.case import KernelCase, Tensors, poisoned
from deepinfer_core.testing.tolerance import roundoff

__all__ = ["cases"]

_TWIN = ReferenceTransform()
_PLAN = Plan(max_rows=1 << 20)


def cases() -> list[KernelCase]:
    """All cases of the family."""
    return [_rms_norm(rows=7, width=512), _rms_norm(rows=1, width=4096)]


def _rms_norm(*, rows: int, width: int) -> KernelCase:
    def arguments(generator: torch.Generator) -> Tensors:
        return {
            "x_TD": (3 * torch.randn(rows, width, generator=generator)).bfloat16(),
            "weight_D": torch.randn(width, generator=generator).bfloat16(),
            "out_TD": poisoned(rows, width, dtype=torch.bfloat16),
        }

    def expect(given: Tensors) -> Tensors:
        out = given["out_TD"]
        _TWIN.rms_norm(_PLAN, given["x_TD"], given["weight_D"], 1e-6, out)
        return {"out_TD": out}

    def bounds(_given: Tensors, expected: Tensors) -> Tensors:
        # Twin and kernel each are off by (D / 2 + 8) roundings in fp32 and one in bf16.
        share = 2 * ((width / 2 + 8) * roundoff(torch.float32) + roundoff(torch.bfloat16))
        return {"out_TD": expected["out_TD"].double().abs() * share}

    return KernelCase(
        operator="transform_rms_norm",
        name=f"width-{width}-rows-{rows}",
        spec=RmsNormSpec(width=width, dtype="bfloat16", weight_dtype="bfloat16", eps=1e-6),
        arguments=arguments,
        expect=expect,
        bounds=bounds,
    )
