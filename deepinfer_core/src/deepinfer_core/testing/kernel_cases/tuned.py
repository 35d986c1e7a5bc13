"""At which sizes are the tunings of an operator measured, and for which rows does each stand?

All widths of DeepSeek-V4.1-Flash, and for each of them numbers of rows that are at most twice as
far apart where tiles begin to matter. What is measured at one of them serves all rows from the one
before on, so that nothing is left to chance between two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from deepinfer_core.testing.kernel_cases.case import KernelCase
from deepinfer_core.testing.kernel_cases.gemm import dense_case, experts_case

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

_EXPERTS = 7
"""Of a device, where the model's 384 and some copies are dealt out to 64."""

_EXPERT_ROWS = (8, 64, 128, 256, 512, 1024, 4096)
"""Of all experts of a device together. Plans are made for powers of two."""

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
                        ends=_routed(rows), in_width=in_width, out_width=out_width, small=False
                    )
                    for rows in _EXPERT_ROWS
                ]
            )


def _routed(rows: int) -> list[int]:
    """Where the rows of each expert end if a router deals them out at random; always alike."""
    chosen = Counter(Random(rows).choices(range(_EXPERTS), k=rows))
    return list(accumulate(chosen[expert] for expert in range(_EXPERTS)))


def _in_order(cases: Sequence[KernelCase]) -> Sequence[TunedLoad]:
    before = [0, *(case.rows for case in cases)]
    most = [*(case.rows for case in cases[:-1]), 0]
    return [
        TunedLoad(case=case, serves=(fewest + 1, last))
        for case, fewest, last in zip(cases, before, most, strict=False)
    ]
