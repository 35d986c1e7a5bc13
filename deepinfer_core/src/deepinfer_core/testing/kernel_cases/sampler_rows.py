"""Which rows do the kernels of a sampler get, and what did earlier kernels make of them?

Rows of one case mix settings: greedy and drawn, every truncation alone and together, forced tokens,
ties, NaN and infinities. What a kernel gets from earlier ones is made by their twins.

Shapes: R rows, V vocabulary, G groups or chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from deepinfer_core.interfaces.operators.sampler import SampleSpec
from deepinfer_core.testing.kernel_cases import sampler_twins as twins
from deepinfer_core.testing.kernel_cases.case import POISON_INTEGER, KernelCase, Tensors
from deepinfer_core.testing.tolerance import roundoff

__all__ = [
    "SHAPES",
    "TIMED",
    "TRUE_VOCABULARY",
    "SampleShape",
    "Setting",
    "cut",
    "cut_outputs",
    "dtype_name",
    "log_bounds",
    "make_case",
    "noise_logits",
    "scanned",
    "truncated",
    "weighed",
]

TRUE_VOCABULARY = 129_280
_FP32, _FP64, _INT64 = torch.float32, torch.float64, torch.int64

Setting = tuple[float, float, int, float, int]

_SETTINGS: tuple[Setting, ...] = (
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
class SampleShape:
    """What a family of cases has in common."""

    name: str
    rows: int
    vocabulary: int
    dtype: torch.dtype = _FP32
    kind: str = "normal"
    small: bool = True
    settings: tuple[Setting, ...] = _SETTINGS
    change: Callable[[Tensors, torch.Generator], None] = lambda _given, _generator: None
    """Of logits and settings, in place."""

    @property
    def spec(self) -> SampleSpec:
        name = dtype_name(self.dtype)
        return SampleSpec(vocabulary=self.vocabulary, dtype=name, raw_dtype=name)

    @property
    def row_bytes(self) -> int:
        """Of the logits, if they are meant to be timed."""
        is_timed = self.name == "timed"
        return self.rows * self.vocabulary * self.dtype.itemsize if is_timed else 0


SHAPES = (
    SampleShape(name="tiny", rows=13, vocabulary=50),
    SampleShape(name="one", rows=1, vocabulary=1),
    SampleShape(name="ties", rows=9, vocabulary=8200, kind="ties"),
    SampleShape(name="fp64", rows=8, vocabulary=2049, dtype=_FP64),
    SampleShape(name="bad", rows=9, vocabulary=700, kind="bad"),
    SampleShape(name="true", rows=len(_SETTINGS), vocabulary=TRUE_VOCABULARY, small=False),
)
TIMED = SampleShape(name="timed", rows=128, vocabulary=TRUE_VOCABULARY, small=False)


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def noise_logits(shape: SampleShape, generator: torch.Generator) -> torch.Tensor:
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


def _rows(shape: SampleShape, generator: torch.Generator) -> Tensors:
    """Logits and settings."""
    settings = [shape.settings[row % len(shape.settings)] for row in range(shape.rows)]
    columns = list(zip(*settings, strict=True))
    logits_RV = noise_logits(shape, generator)
    number = torch.randint(-(1 << 62), 1 << 62, (2, shape.rows), generator=generator)
    given = {
        "logits_RV": logits_RV,
        "temperature_R": torch.tensor(columns[0]),
        "top_p_R": torch.tensor(columns[1]),
        "top_k_R": torch.tensor(columns[2]),
        "min_p_R": torch.tensor(columns[3]),
        "seed_R": number[0],
        "position_R": number[1] >> 40,
        "forced_R": torch.tensor(columns[4]).clamp_max(shape.vocabulary - 1),
    }
    shape.change(given, generator)
    return {"raw_logits_RV": given["logits_RV"].clone(), **given}


def scanned(shape: SampleShape, generator: torch.Generator) -> Tensors:
    """What the scan leaves, too."""
    given = _rows(shape, generator)
    found = twins.scan_logits(given)
    raw = {f"raw_{name}": found[name] for name in ("peak_RS", "sum_RS", "bad_RS")}
    return given | found | {name: value.clone() for name, value in raw.items()}


def truncated(shape: SampleShape, generator: torch.Generator) -> Tensors:
    given = scanned(shape, generator) | cut_outputs(shape.rows)
    return given | twins.truncate_draw(given)


def _marked(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """An output of which a part may stay as it is: a number, since NaN is within no bound."""
    return torch.full(shape, POISON_INTEGER, dtype=dtype)


def cut_outputs(rows: int) -> Tensors:
    return {
        "cut_value_R": _marked(rows, dtype=_FP64),
        "cut_token_R": _marked(rows, dtype=torch.int32),
        "kept_total_R": _marked(rows, dtype=_FP64),
    }


def cut(shape: SampleShape, generator: torch.Generator) -> Tensors:
    """Every row that is drawn from, pending or not, with where it is cut."""
    given = truncated(shape, generator)
    return given | twins.cut_rows(given)


def weighed(shape: SampleShape, generator: torch.Generator) -> Tensors:
    given = truncated(shape, generator)
    given |= twins.cut_rows(given | cut_outputs(shape.rows))
    chunks = {"chunk_RG": _marked(shape.rows, shape.spec.groups, dtype=_INT64)}
    return given | twins.weigh_chunks(given | chunks)


def make_case(
    shape: SampleShape,
    operator: str,
    make: Callable[[SampleShape, torch.Generator], Tensors],
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


def log_bounds(expected: Tensors, *names: str) -> Tensors:
    """Of numbers that fp64 arithmetic leaves a rounding to fp32 for."""
    unit, tiny = roundoff(_FP32), 256 * roundoff(_FP64)
    return {
        name: expected[name].double().abs().nan_to_num(0, 0, 0) * (2 * unit) + tiny
        for name in names
    }
