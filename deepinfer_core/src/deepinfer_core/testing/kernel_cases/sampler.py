"""Which rows do the kernels of a sampler get?

Rows of one case mix settings: greedy and drawn, every truncation alone and together, forced tokens,
ties, NaN and infinities. What a kernel gets from earlier ones is made by their twins.

Shapes: R rows, V vocabulary, S segments, G groups or chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from deepinfer_core.interfaces.operators.sampler import (
    ApplyRulesSpec,
    MaskLogitsSpec,
    SampleSpec,
    TopLogprobsSpec,
)
from deepinfer_core.interfaces.sampler import LogitsRules, SamplerRows
from deepinfer_core.reference.logits_rules import adjusted
from deepinfer_core.testing.kernel_cases import sampler_twins as twins
from deepinfer_core.testing.kernel_cases.case import (
    POISON_INTEGER,
    KernelCase,
    Tensors,
    poisoned,
)
from deepinfer_core.testing.tolerance import roundoff

__all__ = ["cases"]

_TRUE_VOCABULARY = 129_280
_FP32, _FP64, _INT64 = torch.float32, torch.float64, torch.int64

_SETTINGS = (
    # temperature, top-p, top-k, min-p, forced
    (1.0, 1.0, 20, 0.0, -1),
    (0.0, 1.0, -1, 0.0, -1),
    (0.5, 0.875, 40, 0.0, -1),
    (2.0, 0.75, 30, 0.015625, -1),
    (0.75, 0.9375, -1, 0.0, -1),
    (1.0, 1.0, -1, 0.0, -1),
    (1.0, 0.5, -1, 0.0, -1),
    (3.0, 0.90625, 700, 0.0, -1),
    (1.0, 0.625, -1, 0.0625, -1),
    (0.0, 0.5, 3, 0.5, 7),
    (1.0, 1.0, 300, 0.0, 11),
    (0.25, 1.0, -1, 0.125, 5),
    (1.0, 1.0, 1, 0.0, 0),
)


@dataclass(frozen=True, kw_only=True)
class _Shape:
    """What a family of cases has in common."""

    name: str
    rows: int
    vocabulary: int
    dtype: torch.dtype = _FP32
    kind: str = "normal"
    small: bool = True

    @property
    def spec(self) -> SampleSpec:
        name = _name(self.dtype)
        return SampleSpec(vocabulary=self.vocabulary, dtype=name, raw_dtype=name)

    @property
    def row_bytes(self) -> int:
        """Of the logits, if they are meant to be timed."""
        is_timed = self.name == "timed"
        return self.rows * self.vocabulary * self.dtype.itemsize if is_timed else 0


_SHAPES = (
    _Shape(name="tiny", rows=13, vocabulary=50),
    _Shape(name="one", rows=1, vocabulary=1),
    _Shape(name="ties", rows=9, vocabulary=8200, kind="ties"),
    _Shape(name="fp64", rows=8, vocabulary=2049, dtype=_FP64),
    _Shape(name="bad", rows=9, vocabulary=700, kind="bad"),
    _Shape(name="true", rows=len(_SETTINGS), vocabulary=_TRUE_VOCABULARY, small=False),
)
_TIMED = _Shape(name="timed", rows=128, vocabulary=_TRUE_VOCABULARY, small=False)


def cases() -> list[KernelCase]:
    """All cases of all kernels."""
    found = []
    for shape in _SHAPES:
        found += [_scan(shape), _truncate(shape), _cut(shape), _weigh(shape), _draw(shape)]
        found += [_mask(shape, shape.dtype), _rules(shape), _top(shape)]
    return [*found, _mask(_SHAPES[0], _FP64), _scan(_TIMED), _mask(_TIMED, _FP32)]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _logits(shape: _Shape, generator: torch.Generator) -> torch.Tensor:
    size = (shape.rows, shape.vocabulary)
    logits_RV = 2 * torch.randn(size, generator=generator, dtype=shape.dtype)
    if shape.kind == "ties":
        logits_RV = (logits_RV / 2).round()
        logits_RV[-1] = 0
    if shape.kind == "bad":
        logits_RV[1, 5], logits_RV[2, -1] = torch.nan, torch.inf
        logits_RV[3], logits_RV[4, ::2] = -torch.inf, -torch.inf
        logits_RV[5, 1:], logits_RV[6, 300:] = -torch.inf, -torch.inf
    return logits_RV


def _rows(shape: _Shape, generator: torch.Generator) -> Tensors:
    """Logits and settings."""
    columns = list(
        zip(*(_SETTINGS[row % len(_SETTINGS)] for row in range(shape.rows)), strict=True)
    )
    logits_RV = _logits(shape, generator)
    number = torch.randint(-(1 << 62), 1 << 62, (2, shape.rows), generator=generator)
    return {
        "raw_logits_RV": logits_RV,
        "logits_RV": logits_RV.clone(),
        "temperature_R": torch.tensor(columns[0]),
        "top_p_R": torch.tensor(columns[1]),
        "top_k_R": torch.tensor(columns[2]),
        "min_p_R": torch.tensor(columns[3]),
        "seed_R": number[0],
        "position_R": number[1] >> 40,
        "forced_R": torch.tensor(columns[4]).clamp_max(shape.vocabulary - 1),
    }


def _scanned(shape: _Shape, generator: torch.Generator) -> Tensors:
    """What the scan leaves, too."""
    given = _rows(shape, generator)
    found = twins.scan_logits(given)
    raw = {f"raw_{name}": found[name] for name in ("peak_RS", "sum_RS", "bad_RS")}
    return given | found | {name: value.clone() for name, value in raw.items()}


def _truncated(shape: _Shape, generator: torch.Generator) -> Tensors:
    given = _scanned(shape, generator)
    return given | twins.truncate_draw(given)


def _marked(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """An output of which a part may stay as it is: a number, since NaN is within no bound."""
    return torch.full(shape, POISON_INTEGER, dtype=dtype)


def _cut_outputs(rows: int) -> Tensors:
    return {
        "cut_value_R": _marked(rows, dtype=_FP64),
        "cut_token_R": _marked(rows, dtype=torch.int32),
        "kept_total_R": _marked(rows, dtype=_FP64),
    }


def _weighed(shape: _Shape, generator: torch.Generator) -> Tensors:
    given = _truncated(shape, generator)
    given |= twins.cut_rows(given | _cut_outputs(shape.rows))
    chunks = {"chunk_RG": _marked(shape.rows, shape.spec.groups, dtype=_INT64)}
    return given | twins.weigh_chunks(given | chunks)


def _case(
    shape: _Shape,
    operator: str,
    make: Callable[[_Shape, torch.Generator], Tensors],
    twin: Callable[[Tensors], Tensors],
    inputs: str,
    outputs: str,
    bounds: Callable[[Tensors, Tensors], Tensors],
    **more: Any,
) -> KernelCase:
    """A case whose arguments are named in two lines of words."""
    names = outputs.split()

    def arguments(generator: torch.Generator) -> Tensors:
        made = make(shape, generator)
        fresh = {name: _marked(*made[name].shape, dtype=made[name].dtype) for name in names}
        return {name: made[name] for name in inputs.split()} | fresh

    return KernelCase(
        operator=operator,
        name=shape.name,
        spec=more.pop("spec", shape.spec),
        arguments=arguments,
        expect=twin,
        bounds=bounds,
        small=shape.small,
        **more,
    )


def _scan(shape: _Shape) -> KernelCase:
    def bounds(given: Tensors, expected: Tensors) -> Tensors:
        # A power is off by its distance's rounding and its own, a sum by a rounding a level: at
        # most 32 in a row of a thread's. |d| e^d is at most 1/e.
        x_RV, tiny = given["logits_RV"], roundoff(_FP64)
        unit = roundoff(x_RV.dtype)
        most_R = x_RV.shape[1] * (1 / 2.7 + 48.0)
        scaled_RS = expected["scaled_sum_RS"] * 256 * tiny
        return {
            "sum_RS": expected["sum_RS"] * 16 * unit + min(most_R, 1e5) * unit / 256,
            "scaled_sum_RS": scaled_RS + min(most_R, 1e5) * tiny,
        }

    return _case(
        shape,
        "sampler_scan_logits",
        _scanned,
        twins.scan_logits,
        "logits_RV temperature_R top_p_R top_k_R",
        "peak_RS peak_token_RS sum_RS scaled_sum_RS bad_RS group_RG",
        bounds,
        moved_bytes=shape.row_bytes,
        peer=("torch.logsumexp", lambda given: torch.logsumexp(given["logits_RV"], -1)),
    )


def _truncate(shape: _Shape) -> KernelCase:
    def bounds(_given: Tensors, expected: Tensors) -> Tensors:
        tiny = 256 * roundoff(_FP64)
        return _log_bounds(expected, "logprob_R", "processed_logprob_R") | {
            "log_total_R": tiny * (expected["log_total_R"].abs() + 1),
            "total_R": tiny * expected["total_R"],
        }

    return _case(
        shape,
        "sampler_truncate_draw",
        _truncated,
        twins.truncate_draw,
        "raw_logits_RV logits_RV temperature_R top_p_R top_k_R min_p_R seed_R position_R forced_R "
        "raw_peak_RS raw_sum_RS raw_bad_RS peak_RS peak_token_RS scaled_sum_RS group_RG",
        "token_R logprob_R processed_logprob_R invalid_R log_total_R peak_R total_R pending_R",
        bounds,
    )


def _log_bounds(expected: Tensors, *names: str) -> Tensors:
    """Of numbers that fp64 arithmetic leaves a rounding to fp32 for."""
    unit, tiny = roundoff(_FP32), 256 * roundoff(_FP64)
    return {
        name: expected[name].double().abs().nan_to_num(0, 0, 0) * (2 * unit) + tiny
        for name in names
    }


def _cut(shape: _Shape) -> KernelCase:
    def make(shape: _Shape, generator: torch.Generator) -> Tensors:
        return _truncated(shape, generator) | _cut_outputs(shape.rows)

    def bounds(_given: Tensors, expected: Tensors) -> Tensors:
        # Up to 129280 / 1024 shares in a row, and a tree of 1024 threads.
        share = 256 * roundoff(_FP64)
        return {"kept_total_R": expected["kept_total_R"].nan_to_num(0) * share}

    return _case(
        shape,
        "sampler_cut_rows",
        make,
        twins.cut_rows,
        "logits_RV temperature_R top_p_R top_k_R min_p_R peak_R total_R pending_R",
        "cut_value_R cut_token_R kept_total_R",
        bounds,
    )


def _weigh(shape: _Shape) -> KernelCase:
    return _case(
        shape,
        "sampler_weigh_chunks",
        _weighed,
        twins.weigh_chunks,
        "logits_RV temperature_R min_p_R peak_R pending_R cut_value_R cut_token_R kept_total_R",
        "chunk_RG",
        lambda _given, _expected: {},
    )


def _draw(shape: _Shape) -> KernelCase:
    return _case(
        shape,
        "sampler_draw_chunks",
        _weighed,
        twins.draw_chunks,
        "raw_logits_RV logits_RV temperature_R min_p_R seed_R position_R forced_R log_total_R "
        "peak_R pending_R cut_value_R cut_token_R kept_total_R chunk_RG",
        "token_R logprob_R processed_logprob_R",
        lambda _given, expected: _log_bounds(expected, "logprob_R", "processed_logprob_R"),
    )


def _mask(shape: _Shape, dtype: torch.dtype) -> KernelCase:
    words = -(-shape.vocabulary // 32)

    def arguments(generator: torch.Generator) -> Tensors:
        bits_RW = torch.randint(-(1 << 31), 1 << 31, (shape.rows, words), generator=generator)
        return {
            "raw_logits_RV": _logits(shape, generator),
            "allowed_RW": bits_RW.to(torch.int32),
            "logits_RV": poisoned(shape.rows, shape.vocabulary, dtype=dtype),
        }

    def expect(given: Tensors) -> Tensors:
        rows = _sampler_rows(shape.rows, allowed_RW=given["allowed_RW"])
        return {"logits_RV": adjusted(given["raw_logits_RV"].to(dtype), rows)}

    return KernelCase(
        operator="sampler_mask_logits",
        name=f"{shape.name}-to-{_name(dtype)}",
        spec=MaskLogitsSpec(
            vocabulary=shape.vocabulary, raw_dtype=_name(shape.dtype), dtype=_name(dtype)
        ),
        arguments=arguments,
        expect=expect,
        small=shape.small,
        moved_bytes=2 * shape.row_bytes,
    )


def _rules(shape: _Shape) -> KernelCase:
    """In place: the adjusted logits are an output that is read first."""

    def arguments(generator: torch.Generator) -> Tensors:
        rows, vocabulary = shape.rows, shape.vocabulary
        biases, seen = min(3, vocabulary), min(40, vocabulary)
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
            "logits_RV": _logits(shape, generator).double(),
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


def _top(shape: _Shape) -> KernelCase:
    alternatives = min(20, shape.vocabulary)

    def make(shape: _Shape, generator: torch.Generator) -> Tensors:
        given = _truncated(shape, generator)
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

    return _case(
        shape,
        "sampler_top_logprobs",
        make,
        expect,
        "raw_logits_RV group_RG log_total_R invalid_R",
        "top_token_RA top_logprob_RA",
        lambda _given, expected: _log_bounds(expected, "top_logprob_RA"),
        spec=TopLogprobsSpec(
            vocabulary=shape.vocabulary,
            dtype=_name(shape.dtype),
            raw_dtype=_name(shape.dtype),
            alternatives=alternatives,
        ),
        peer=("torch.topk", lambda given: given["raw_logits_RV"].topk(alternatives)),
    )
