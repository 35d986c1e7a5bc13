"""On which rows must masks, rules and alternatives equal their twins?

Shapes: R rows, V vocabulary, B biases, N earlier tokens, A alternatives.
"""

from __future__ import annotations

from typing import Any

import torch

from deepinfer_core.interfaces.operators.sampler import (
    ApplyRulesSpec,
    MaskLogitsSpec,
    TopLogprobsSpec,
)
from deepinfer_core.interfaces.sampler import LogitsRules, SamplerRows
from deepinfer_core.reference.logits_rules import adjusted
from deepinfer_core.testing.kernel_cases.case import KernelCase, Tensors, poisoned
from deepinfer_core.testing.kernel_cases.sampler_edges import EDGES
from deepinfer_core.testing.kernel_cases.sampler_rows import (
    SHAPES,
    TIMED,
    SampleShape,
    dtype_name,
    log_bounds,
    make_case,
    noise_logits,
    truncated,
)

__all__ = ["cases"]

_FP32, _FP64, _INT64 = torch.float32, torch.float64, torch.int64


def cases() -> list[KernelCase]:
    """All cases of what is done before and after the draw."""
    found = [_mask(SHAPES[0], _FP64), _mask(TIMED, _FP32)]
    for shape in SHAPES:
        found += [_mask(shape, shape.dtype), _rules(shape), _top(shape, 20)]
    # Lists that a block goes through more than twice.
    found.append(_rules(SampleShape(name="long", rows=2, vocabulary=1300), biases=520, seen=1100))
    return [*found, *(_top(shape, 5) for shape in EDGES)]


def _mask(shape: SampleShape, dtype: torch.dtype) -> KernelCase:
    words = -(-shape.vocabulary // 32)

    def arguments(generator: torch.Generator) -> Tensors:
        bits_RW = torch.randint(-(1 << 31), 1 << 31, (shape.rows, words), generator=generator)
        return {
            "raw_logits_RV": noise_logits(shape, generator),
            "allowed_RW": bits_RW.to(torch.int32),
            "logits_RV": poisoned(shape.rows, shape.vocabulary, dtype=dtype),
        }

    def expect(given: Tensors) -> Tensors:
        rows = _sampler_rows(shape.rows, allowed_RW=given["allowed_RW"])
        return {"logits_RV": adjusted(given["raw_logits_RV"].to(dtype), rows)}

    return KernelCase(
        operator="sampler_mask_logits",
        name=f"{shape.name}-to-{dtype_name(dtype)}",
        spec=MaskLogitsSpec(
            vocabulary=shape.vocabulary, raw_dtype=dtype_name(shape.dtype), dtype=dtype_name(dtype)
        ),
        arguments=arguments,
        expect=expect,
        small=shape.small,
        moved_bytes=2 * shape.row_bytes,
    )


def _rules(shape: SampleShape, *, biases: int = 3, seen: int = 40) -> KernelCase:
    """In place: the adjusted logits are an output that is read first."""
    biases, seen = min(biases, shape.vocabulary), min(seen, shape.vocabulary)

    def arguments(generator: torch.Generator) -> Tensors:
        rows, vocabulary = shape.rows, shape.vocabulary
        order_RV = torch.rand(rows, vocabulary, generator=generator).argsort(1)
        bias_token_RB, seen_token_RN = order_RV[:, :biases].clone(), order_RV[:, :seen].clone()
        bias_token_RB[rows // 2, 0] = seen_token_RN[0, seen // 2] = -1
        return {
            "bias_token_RB": bias_token_RB,
            "bias_RB": torch.randn(rows, biases, generator=generator),
            "seen_token_RN": seen_token_RN,
            "output_count_RN": torch.randint(0, 3, (rows, seen), generator=generator),
            "repetition_R": 0.5 + torch.rand(rows, generator=generator),
            "frequency_R": torch.randn(rows, generator=generator),
            "presence_R": torch.randn(rows, generator=generator),
            "logits_RV": noise_logits(shape, generator).double(),
        }

    def expect(given: Tensors) -> Tensors:
        logits_RV = given.pop("logits_RV")
        rows = _sampler_rows(shape.rows, rules=LogitsRules(**given))
        return {"logits_RV": adjusted(logits_RV, rows)}

    return KernelCase(
        operator="sampler_apply_rules",
        name=shape.name,
        spec=ApplyRulesSpec(vocabulary=shape.vocabulary),
        arguments=arguments,
        expect=expect,
        small=shape.small,
    )


def _sampler_rows(count: int, **given: Any) -> SamplerRows:
    """Settings of which only mask and rules matter."""
    column = torch.zeros(count)
    names = ("temperature_R", "top_p_R", "top_k_R", "min_p_R", "seed_R", "position_R", "forced_R")
    settings: dict[str, Any] = dict.fromkeys(names, column)
    return SamplerRows(**settings, **given)


def _top(shape: SampleShape, alternatives: int) -> KernelCase:
    alternatives = min(alternatives, shape.vocabulary)

    def make(shape: SampleShape, generator: torch.Generator) -> Tensors:
        given = truncated(shape, generator)
        given["invalid_R"] = given["raw_bad_RS"].bool().any(-1)
        given["top_token_RA"] = torch.zeros(shape.rows, alternatives, dtype=_INT64)
        given["top_logprob_RA"] = torch.zeros(shape.rows, alternatives)
        return given

    def expect(given: Tensors) -> Tensors:
        logits_RV, is_invalid_R1 = given["raw_logits_RV"].double(), given["invalid_R"][:, None]
        order_RV = logits_RV.sort(dim=-1, descending=True, stable=True).indices
        top_RA = order_RV[:, :alternatives]
        log_RA = (logits_RV.gather(1, top_RA) - given["log_total_R"][:, None]).float()
        return {
            "top_token_RA": torch.where(is_invalid_R1, given["top_token_RA"], top_RA),
            "top_logprob_RA": torch.where(is_invalid_R1, given["top_logprob_RA"], log_RA),
        }

    return make_case(
        shape,
        "sampler_top_logprobs",
        make,
        expect,
        "raw_logits_RV group_RG log_total_R invalid_R",
        "top_token_RA top_logprob_RA",
        lambda _given, expected: log_bounds(expected, "top_logprob_RA"),
        spec=TopLogprobsSpec(
            vocabulary=shape.vocabulary,
            dtype=dtype_name(shape.dtype),
            raw_dtype=dtype_name(shape.dtype),
            alternatives=alternatives,
        ),
        peer=("torch.topk", lambda given: given["raw_logits_RV"].topk(alternatives)),
    )
