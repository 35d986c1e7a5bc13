"""On which rows must the kernels of the ratio rule equal their twins?

Laws of drafts are made of those of the rows: the same one, others that share most of their weight,
certain drafts, and none. Laws lie in other rows than those that they belong to.

Shapes: R rows, V vocabulary, P rows of kept laws.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from deepinfer_core.interfaces.sampler import DraftedRows
from deepinfer_core.reference.laws import invert
from deepinfer_core.reference.random_numbers import (
    ACCEPTANCE_CASE,
    RESIDUAL_CASE,
    uniform_bits,
)
from deepinfer_core.reference.ratio_rule import keep_laws, ratio_rule
from deepinfer_core.testing.kernel_cases.case import POISON_INTEGER, KernelCase, Tensors
from deepinfer_core.testing.kernel_cases.sampler_residuals import RESIDUAL, residual_laws
from deepinfer_core.testing.kernel_cases.sampler_rows import (
    SHAPES,
    TIMED,
    SampleShape,
    cut,
    log_bounds,
    make_case,
    noise_logits,
)
from deepinfer_core.testing.kernel_cases.sampler_twins import kept_weights, logarithms
from deepinfer_core.testing.tolerance import roundoff

__all__ = ["cases"]

Make = Callable[[SampleShape, torch.Generator], Tensors]


def _tie_segments(given: Tensors, _generator: torch.Generator) -> None:
    """The likeliest token of every row stands in both segments: the first of them is drawn."""
    given["logits_RV"][:, 3] = given["logits_RV"][:, -1] = 20.0


_EDGES = SampleShape(
    name="edges",
    rows=3,
    vocabulary=8200,
    # Greedy; as likely as the likeliest, no less; as it is.
    settings=((0.0, 1.0, -1, 0.0, -1), (1.0, 1.0, -1, 1.0, -1), (1.0, 1.0, -1, 0.0, -1)),
    change=_tie_segments,
)


def cases() -> list[KernelCase]:
    """All cases of the rule."""
    found = [
        case
        for shape in (*SHAPES, _EDGES)
        for case in (_write(shape, _written), _verify(shape, _drafted))
    ]
    found.append(_verify(RESIDUAL, _undrawn))
    return [*found, _write(TIMED, _uncut), _verify(TIMED, _uncut)]


def write_laws(given: Tensors) -> Tensors:
    """Laws of rows in their places."""
    law_PV = given["law_PV"]
    law_PV[given["law_row_R"]] = _laws(given)
    return {"law_PV": law_PV}


def verify_drafts(given: Tensors) -> Tensors:
    """Verdicts, and the tokens of rows with drafts in which none is forced."""
    draft_R, forced_R = given["draft_R"], given["forced_R"]
    drafted = DraftedRows(draft_R=draft_R, law_row_R=given["law_row_R"], law_PV=given["law_PV"])
    bits = [
        uniform_bits(given["seed_R"], given["position_R"], case)
        for case in (ACCEPTANCE_CASE, RESIDUAL_CASE)
    ]
    accepted_R, token_R, overlap_R = ratio_rule(given["own_law_RV"].long(), drafted, *bits)
    is_forced_R = (forced_R >= 0) & (draft_R >= 0)
    found = {"token_R": token_R, **logarithms(given, token_R)}
    is_greedy_R = given["temperature_R"] == 0
    is_best_R = given["own_law_RV"].gather(1, token_R[:, None])[:, 0] > 0
    greedy_R = torch.where(is_best_R, 0.0, -torch.inf)
    found["processed_logprob_R"] = torch.where(
        is_greedy_R, greedy_R, found["processed_logprob_R"]
    ).float()
    is_told_R = (draft_R >= 0) & ~is_forced_R
    return {name: torch.where(is_told_R, value, given[name]) for name, value in found.items()} | {
        "accepted_R": torch.where(is_forced_R, forced_R == draft_R, accepted_R),
        "overlap_R": overlap_R.float(),
    }


def _laws(given: Tensors) -> torch.Tensor:
    """Of the rows, int32; of invalid ones, the first token for certain."""
    is_drawn_R = (given["temperature_R"] > 0) & ~given["invalid_R"]
    logits_RV = given["logits_RV"].nan_to_num(0, 0)
    best_R = logits_RV.argmax(-1).masked_fill(given["invalid_R"], 0)
    point_RV = torch.zeros_like(logits_RV, dtype=torch.int64)
    point_RV.scatter_(1, best_R[:, None], 1 << 31)
    weight_RV = kept_weights(given)[2]
    return keep_laws(torch.where(is_drawn_R[:, None], weight_RV, point_RV))


def _written(shape: SampleShape, generator: torch.Generator) -> Tensors:
    given = cut(shape, generator)
    rows, vocabulary = given["logits_RV"].shape
    places = torch.randperm(rows + 1, generator=generator)[:rows]
    law_PV = torch.full((rows + 1, vocabulary), POISON_INTEGER, dtype=torch.int32)
    return given | {"law_row_R": places, "law_PV": law_PV}


def _drafted(shape: SampleShape, generator: torch.Generator) -> Tensors:
    """Rows take turns: of another law, the same, another, certain, none; invalid ones have none."""
    given = _written(shape, generator)
    own_RV = _laws(given)
    rows = own_RV.shape[0]
    kind_R = torch.arange(rows) % 5
    other_RV = own_RV // 2 + own_RV.roll(1, 1) // 3
    other_RV[:, 0] += 1
    other_RV[kind_R == 1] = own_RV[kind_R == 1]
    law_PV, law_row_R = given["law_PV"], given["law_row_R"]
    law_PV[law_row_R] = other_RV
    bits_R = torch.randint(1 << 53, (rows,), generator=generator)
    draft_R = invert(other_RV.long(), bits_R)
    draft_R[given["invalid_R"] | (kind_R == 4)] = -1
    return given | {
        "own_law_RV": own_RV,
        "draft_R": draft_R,
        "law_row_R": law_row_R.masked_fill(kind_R >= 3, -1),
        "accepted_R": torch.zeros(rows, dtype=torch.bool),
        "overlap_R": torch.zeros(rows),
    }


def _undrawn(shape: SampleShape, generator: torch.Generator) -> Tensors:
    """Rows whose drafts do not stand in their laws; of each law in its own place."""
    given = _drafted(shape, generator)
    return residual_laws(given | {"law_row_R": torch.arange(shape.rows)})


def _uncut(shape: SampleShape, generator: torch.Generator) -> Tensors:
    """Rows of the model's vocabulary from which all tokens survive, and laws of whatever numbers.

    Made without sorting so many logits, to be timed. A third of the drafts is rejected.
    """
    rows, vocabulary = shape.rows, shape.vocabulary
    logits_RV = noise_logits(shape, generator)
    segments = shape.spec.segments
    own_RV, law_RV = torch.randint(
        30_000, (2, rows, vocabulary), generator=generator, dtype=torch.int32
    )
    return {
        "logits_RV": logits_RV,
        "raw_logits_RV": logits_RV.clone(),
        "temperature_R": torch.ones(rows),
        "min_p_R": torch.zeros(rows),
        "seed_R": torch.arange(rows),
        "position_R": torch.arange(rows),
        "forced_R": torch.full((rows,), -1),
        "log_total_R": logits_RV.double().logsumexp(-1),
        "invalid_R": torch.zeros(rows, dtype=torch.bool),
        "peak_R": logits_RV.double().amax(-1),
        "cut_value_R": torch.full((rows,), -torch.inf, dtype=torch.float64),
        "cut_token_R": torch.full((rows,), vocabulary, dtype=torch.int32),
        "kept_total_R": (logits_RV - logits_RV.amax(-1, keepdim=True)).double().exp().sum(-1),
        "peak_RS": torch.zeros(rows, segments),
        "peak_token_RS": torch.zeros(rows, segments, dtype=torch.int32),
        "own_law_RV": own_RV,
        "draft_R": law_RV.argmax(-1),
        "law_row_R": torch.randperm(rows, generator=generator),
        "law_PV": law_RV,
        "token_R": torch.zeros(rows, dtype=torch.int64),
        "logprob_R": torch.zeros(rows),
        "processed_logprob_R": torch.zeros(rows),
        "accepted_R": torch.zeros(rows, dtype=torch.bool),
        "overlap_R": torch.zeros(rows),
    }


def _write(shape: SampleShape, make: Make) -> KernelCase:
    return make_case(
        shape,
        "sampler_write_laws",
        make,
        write_laws,
        "logits_RV temperature_R min_p_R invalid_R peak_R cut_value_R cut_token_R kept_total_R "
        "peak_RS peak_token_RS law_row_R",
        "law_PV",
        lambda _given, _expected: {},
        # The logits, and as many int32.
        moved_bytes=2 * shape.row_bytes,
    )


def _verify(shape: SampleShape, make: Make) -> KernelCase:
    def bounds(_given: Tensors, expected: Tensors) -> Tensors:
        # One quotient of the same whole numbers, and its distance from 1, rounded to fp32.
        overlap = torch.full_like(expected["overlap_R"], 2 * roundoff(torch.float32))
        return log_bounds(expected, "logprob_R", "processed_logprob_R") | {
            "overlap_R": overlap.double()
        }

    return make_case(
        shape,
        "sampler_verify_drafts",
        make,
        verify_drafts,
        "raw_logits_RV logits_RV temperature_R min_p_R seed_R position_R forced_R log_total_R "
        "peak_R cut_value_R cut_token_R kept_total_R own_law_RV draft_R law_row_R law_PV",
        "token_R logprob_R processed_logprob_R accepted_R overlap_R",
        bounds,
        # Both laws, once.
        moved_bytes=2 * shape.row_bytes,
    )
