"""At which sizes are the tunings of an operator measured, and for which rows does each stand?

All widths of DeepSeek-V4.1-Flash, and for each of them numbers of rows that are at most twice as
far apart where tiles begin to matter. What is measured at one of them serves all rows from the one
before on, so that nothing is left to chance between two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deepinfer_core.testing.kernel_cases.case import KernelCase
from deepinfer_core.testing.kernel_cases.gemm import dense_case, experts_case
from deepinfer_core.testing.kernel_cases.gemm_loads import ends_of

__all__ = ["TunedLoad", "tuned_loads"]

_ROWS = (1, 8, 16, 32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096)

_DENSE: Sequence[tuple[int, int, int, str]] = (
    # input width, groups, output width, result
    (4096, 1, 4096, "bfloat16"),
    (5120, 1, 4608, "float32"),
    (8192, 1, 5120, "bfloat16"),
    (2304, 1, 5120, "bfloat16"),
    (5120, 1, 1280, "bfloat16"),
    (5120, 1, 384, "float32"),
    (5120, 1, 512, "bfloat16"),
    (1280, 1, 32768, "bfloat16"),
    (4096, 8, 1024, "bfloat16"),
)

_EXPERT_MEANS = (1, 8, 32, 128, 512)
_EXPERT_WIDTHS = ((5120, 4608), (2304, 5120))


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedLoad:
    """One size.

    Attributes:
        case: of the operator.
        serves: the fewest and the most rows that it stands for; 0 as the most: any more.
    """

    case: KernelCase
    serves: tuple[int, int]


def tuned_loads(operator: str) -> Iterator[Sequence[TunedLoad]]:
    """The sizes of an operator, those of one spec together and with rising rows."""
    if operator == "gemm_dense":
        for in_width, groups, out_width, out_dtype in _DENSE:
            yield _in_order(
                [
                    dense_case(
                        rows=rows,
                        in_width=in_width,
                        groups=groups,
                        out_width=out_width,
                        out_dtype=out_dtype,
                        small=False,
                    )
                    for rows in _ROWS
                ]
            )
    elif operator == "gemm_experts":
        for in_width, out_width in _EXPERT_WIDTHS:
            yield _in_order(
                [
                    experts_case(
                        ends=_at_random(mean), in_width=in_width, out_width=out_width, small=False
                    )
                    for mean in _EXPERT_MEANS
                ]
            )


def _at_random(mean: int) -> list[int]:
    """Rows of experts as a router leaves them: mostly within two deviations of the mean."""
    away = 2 * math.isqrt(mean)
    return ends_of(max(0, mean - away), mean + away)


def _in_order(cases: Sequence[KernelCase]) -> Sequence[TunedLoad]:
    before = [0, *(case.rows for case in cases)]
    most = [*(case.rows for case in cases[:-1]), 0]
    return [
        TunedLoad(case=case, serves=(fewest + 1, last))
        for case, fewest, last in zip(cases, before, most, strict=False)
    ]
