"""On which rows must the kernels that draw tokens equal their twins?

Shapes: R rows, S segments, G groups or chunks.
"""

from __future__ import annotations

import torch

from deepinfer_core.testing.kernel_cases import sampler_twins as twins
from deepinfer_core.testing.kernel_cases.case import KernelCase, Tensors
from deepinfer_core.testing.kernel_cases.sampler_edges import EDGES, FEW_A_PAIR
from deepinfer_core.testing.kernel_cases.sampler_rows import (
    SHAPES,
    TIMED,
    SampleShape,
    cut_outputs,
    log_bounds,
    make_case,
    scanned,
    truncated,
    weighed,
)
from deepinfer_core.testing.tolerance import roundoff

__all__ = ["cases"]

_FP64 = torch.float64


def cases() -> list[KernelCase]:
    """All cases of the draw."""
    found = [_scan(TIMED)]
    for shape in (*SHAPES, *EDGES):
        found += [_scan(shape), _truncate(shape), _cut(shape), _weigh(shape), _draw(shape)]
    return [*found, _truncate(FEW_A_PAIR)]


def _scan(shape: SampleShape) -> KernelCase:
    def bounds(given: Tensors, expected: Tensors) -> Tensors:
        # A power is off by its distance's rounding and its own, a sum by a rounding a level: at
        # most 32 in a row of a thread's. |d| e^d is at most 1/e.
        x_RV, tiny = given["logits_RV"], roundoff(_FP64)
        unit = roundoff(x_RV.dtype)
        most_R = x_RV.shape[1] * (1 / 2.7 + 48.0)
        scaled_RS = expected["scaled_sum_RS"] * 256 * tiny
        # The two zeros are one peak, of either sign.
        peaks = {name: torch.zeros_like(expected[name]) for name in ("peak_RS", "group_RG")}
        return peaks | {
            "sum_RS": expected["sum_RS"] * 16 * unit + min(most_R, 1e5) * unit / 256,
            "scaled_sum_RS": scaled_RS + min(most_R, 1e5) * tiny,
        }

    return make_case(
        shape,
        "sampler_scan_logits",
        scanned,
        twins.scan_logits,
        "logits_RV temperature_R top_p_R top_k_R",
        "peak_RS peak_token_RS sum_RS scaled_sum_RS bad_RS group_RG",
        bounds,
        moved_bytes=shape.row_bytes,
        peer=("torch.logsumexp", lambda given: torch.logsumexp(given["logits_RV"], -1)),
    )


def _truncate(shape: SampleShape) -> KernelCase:
    def bounds(_given: Tensors, expected: Tensors) -> Tensors:
        tiny = 256 * roundoff(_FP64)
        return log_bounds(expected, "logprob_R", "processed_logprob_R") | {
            "log_total_R": tiny * (expected["log_total_R"].abs() + 1),
            "total_R": tiny * expected["total_R"],
            # The two zeros are one logit, of either sign.
            "cut_value_R": torch.zeros_like(expected["cut_value_R"]),
            "kept_total_R": tiny * expected["kept_total_R"],
        }

    return make_case(
        shape,
        "sampler_truncate_draw",
        truncated,
        twins.truncate_draw,
        "raw_logits_RV logits_RV temperature_R top_p_R top_k_R min_p_R seed_R position_R forced_R "
        "raw_peak_RS raw_sum_RS raw_bad_RS peak_RS peak_token_RS scaled_sum_RS group_RG",
        "token_R logprob_R processed_logprob_R invalid_R log_total_R peak_R total_R pending_R "
        "cut_value_R cut_token_R kept_total_R",
        bounds,
    )


def _cut(shape: SampleShape) -> KernelCase:
    def make(shape: SampleShape, generator: torch.Generator) -> Tensors:
        return truncated(shape, generator) | cut_outputs(shape.rows)

    def bounds(_given: Tensors, expected: Tensors) -> Tensors:
        # Up to 129280 / 1024 shares in a row, and a tree of 1024 threads.
        share = 256 * roundoff(_FP64)
        # The two zeros are one logit, of either sign.
        return {
            "cut_value_R": torch.zeros_like(expected["cut_value_R"]),
            "kept_total_R": expected["kept_total_R"].nan_to_num(0) * share,
        }

    return make_case(
        shape,
        "sampler_cut_rows",
        make,
        twins.cut_rows,
        "logits_RV temperature_R top_p_R top_k_R min_p_R peak_R total_R pending_R",
        "cut_value_R cut_token_R kept_total_R",
        bounds,
    )


def _weigh(shape: SampleShape) -> KernelCase:
    return make_case(
        shape,
        "sampler_weigh_chunks",
        weighed,
        twins.weigh_chunks,
        "logits_RV temperature_R min_p_R peak_R pending_R cut_value_R cut_token_R kept_total_R",
        "chunk_RG",
        lambda _given, _expected: {},
    )


def _draw(shape: SampleShape) -> KernelCase:
    return make_case(
        shape,
        "sampler_draw_chunks",
        weighed,
        twins.draw_chunks,
        "raw_logits_RV logits_RV temperature_R min_p_R seed_R position_R forced_R log_total_R "
        "peak_R pending_R cut_value_R cut_token_R kept_total_R chunk_RG",
        "token_R logprob_R processed_logprob_R",
        lambda _given, expected: log_bounds(expected, "logprob_R", "processed_logprob_R"),
    )
