"""Do launch code and kernels together compute what the reference computes, from token to logit?

Kernels are interpreted; those for one architecture stay out.

Shapes: T rows, N heads, D width, L listed keys, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from deepinfer_core.interfaces.attention import KeySource
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.evaluate import score_logits
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.reference.attention import ReferenceAttention
from deepinfer_core.reference.cache_codec import read_rows
from deepinfer_core.testing.beginnings import words
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.side_by_side import Written, side_by_side
from deepinfer_core.testing.small_engines import slim_config
from deepinfer_core.testing.tiles import InterpretedKernels
from deepinfer_core.testing.tiny_model import reference_parts, stored_tiny_model

TOKENS = words("whole model", 30)
"""More than a window of 16 and its ring of 22."""

KERNELS = InterpretedKernels()
InterpretedParts = Callable[[Numerics], ModelParts]
"""Each kernel is built once for all tests, which takes as long as running it a few times."""

BF16_STEP = 2.0**-8
"""Between two neighbours in bf16, at most, in shares of the smaller one."""

OPERATORS = (
    "codec.compress_pairs",
    "codec.store",
    "dense.run",
    "grouped.run_experts",
    "indexer.scores",
    "indexer.select",
    "transform.add_expand",
    "transform.collapse_norm",
    "transform.expand_norm",
    "transform.engram_gate",
    "transform.engram_rows",
    "transform.fake_quantise",
    "transform.gate_topk",
    "transform.mhc_collapse",
    "transform.mhc_mixes",
    "transform.norm_rope",
    "transform.rms_norm_rounded",
    "transform.rope",
    "transform.rope_rounded",
    "transform.swiglu_rounded",
)

SCRATCH = {("transform.rope_rounded", "x_THD"), ("transform.add_expand", "x_TD")}
"""What an operator may overwrite, with anything."""


class TiledAttention(ReferenceAttention):
    """The reference's attention with the order and the roundings of the kernel.

    An online softmax over tiles of 64 present keys, source after source, whose weights are rounded
    to bf16 for the second product. Their sum is not.
    """

    def run(
        self,
        plan: Plan,
        q_TND: torch.Tensor,
        sources: Sequence[KeySource],
        sink_N: torch.Tensor,
        scale: float,
        out_TND: torch.Tensor,
        lse_TN: torch.Tensor,
    ) -> None:
        q = q_TND.to(torch.float32)
        largest_TN = torch.full(q.shape[:2], torch.finfo(torch.float32).min)
        total_TN, blend_TND = torch.zeros(q.shape[:2]), torch.zeros(q.shape)
        for source in sources:
            # Present slots move together, in order.
            place_TL = (source.slot_TL < 0).int().argsort(dim=1, stable=True)
            for slot_TL in source.slot_TL.gather(1, place_TL).split(64, dim=1):
                absent_TL = slot_TL < 0
                key_TLD = read_rows(source.pages, slot_TL, torch.float32)
                key_TLD = key_TLD.masked_fill(absent_TL[..., None], 0)
                score_TNL = (q @ key_TLD.mT * scale).masked_fill(absent_TL[:, None], -torch.inf)
                before_TN = largest_TN
                largest_TN = torch.maximum(before_TN, score_TNL.amax(-1))
                keep_TN = torch.exp(before_TN - largest_TN)
                weight_TNL = torch.exp(score_TNL - largest_TN[..., None])
                total_TN = total_TN * keep_TN + weight_TNL.sum(-1)
                rounded_TNL = weight_TNL.to(torch.bfloat16).to(torch.float32)
                blend_TND = blend_TND * keep_TN[..., None] + rounded_TNL @ key_TLD
        is_empty_TN = total_TN == 0
        divisor_TN = total_TN + torch.exp(sink_N - largest_TN)
        out_TND.copy_(blend_TND / divisor_TN.masked_fill(is_empty_TN, 1)[..., None])
        lse_TN.copy_((largest_TN + total_TN.log()).masked_fill(is_empty_TN, torch.inf))


class SteppedAttention(ReferenceAttention):
    """The reference's attention, some of whose outputs go to a neighbour in bf16.

    Args:
        share: of the outputs.
        generator: says which, and which of two neighbours.
    """

    def __init__(self, share: float, generator: torch.Generator) -> None:
        self._share, self._generator = share, generator

    def run(
        self,
        plan: Plan,
        q_TND: torch.Tensor,
        sources: Sequence[KeySource],
        sink_N: torch.Tensor,
        scale: float,
        out_TND: torch.Tensor,
        lse_TN: torch.Tensor,
    ) -> None:
        super().run(plan, q_TND, sources, sink_N, scale, out_TND, lse_TN)
        drawn_TND = torch.rand(out_TND.shape, generator=self._generator)
        # The bits of a number other than zero are those of its neighbours, plus or minus one.
        step_TND = (drawn_TND < self._share).int() - 2 * (drawn_TND < self._share / 2).int()
        out_TND.view(torch.int16).add_(step_TND.masked_fill(out_TND == 0, 0).to(torch.int16))


@pytest.fixture
def interpreted_parts(with_kernels: Callable[..., ModelParts]) -> InterpretedParts:
    """Gives the components of some numerics over interpreted kernels."""
    return lambda numerics: with_kernels(reference_parts(numerics), KERNELS, is_hopper=False)


def attending(parts: ModelParts, attention: ReferenceAttention) -> ModelParts:
    return replace(parts, prefill=attention, decode=attention)


def logits(parts: ModelParts, folder: Path, chunk: int | None = None) -> torch.Tensor:
    model = stored_tiny_model(folder, slim_config(16), parts)
    with torch.inference_mode():
        return score_logits(model, TOKENS, chunk_tokens=chunk)


def row_errors(found_TV: torch.Tensor, wanted_TV: torch.Tensor) -> torch.Tensor:
    return (found_TV - wanted_TV).norm(dim=1) / wanted_TV.norm(dim=1)


# fp32: sums of at most 200 terms in another order have errors of about sqrt(200) 2^-24 = 8e-7, and
# some ten of them follow each other in each of four layers: 40 such errors of random sign give
# 5e-6. A wrong row, mask or scale changes everything: its error is about 1.
@pytest.mark.parametrize("caches", [False, True])
@pytest.mark.parametrize("chunk", [6, 30])
def test_fp32_logits_are_those_of_the_reference(
    caches: bool, chunk: int, tmp_path: Path, interpreted_parts: InterpretedParts
) -> None:
    numerics = Numerics(compute="float32", activation_quantisation=False, cache_quantisation=caches)
    wanted_TV = logits(reference_parts(numerics), tmp_path / "theirs")
    found_TV = logits(interpreted_parts(numerics), tmp_path / "ours", chunk)
    assert float(row_errors(found_TV, wanted_TV).max()) <= 1e-5


@pytest.mark.parametrize("chunk", [6, 30])
def test_every_operator_rounds_where_the_reference_does(
    chunk: int, tmp_path: Path, interpreted_parts: InterpretedParts
) -> None:
    """In production arithmetic, each on the numbers that the reference computes with."""
    numerics, seen = Numerics(), list[Written]()
    specified = attending(reference_parts(numerics), TiledAttention())
    logits(side_by_side(specified, interpreted_parts(numerics), seen), tmp_path, chunk)
    slot = "decode.run" if chunk == 6 else "prefill.run"
    assert {one.operator for one in seen} >= {slot, *OPERATORS}
    results = [one for one in seen if (one.operator, one.argument) not in SCRATCH]
    strayed = [one for one in results if not error_of(one) <= allowed(one)]
    assert [(one.operator, one.argument, error_of(one)) for one in strayed] == []


def error_of(one: Written) -> float:
    """Norm of the difference, in shares of the wanted norm; of integers, how many differ."""
    if not one.wanted.is_floating_point():
        return float((one.wanted != one.found).sum())
    is_finite = one.wanted.isfinite()
    if not torch.equal(is_finite, one.found.isfinite()):
        return torch.inf
    wanted, found = one.wanted[is_finite].double(), one.found[is_finite].double()
    return float((found - wanted).norm() / wanted.norm().clamp(min=1e-30))


def allowed(one: Written) -> float:
    """What another order of a sum may do.

    A sum of 200 terms in fp32 is off by 8e-7 as above. A bf16 result goes to its neighbour only
    where that crosses a border between two of them: 8e-7 / 2^-8, one in 5,000. One in 1,000 by a
    step is an error of 2^-8 / sqrt(1000). Integers, and bytes of caches, come from what was already
    rounded.
    """
    if not one.wanted.is_floating_point():
        return 0
    return BF16_STEP / 1000**0.5 if one.wanted.dtype is torch.bfloat16 else 1e-6


def test_production_logits_are_as_far_off_as_last_bits_of_attention_move_them(
    request: pytest.FixtureRequest, tmp_path: Path, interpreted_parts: InterpretedParts
) -> None:
    """The kernel rounds weights of the softmax, the reference does not; the model enlarges that.

    It moves some outputs of attention by a step of bf16. As many steps of random sign, in outputs
    of the reference, lead as far. Medians of 30 rows scatter by an eighth with the steps that are
    drawn; half as much again as the largest of three is four times that.
    """
    numerics, seen = Numerics(), list[Written]()
    reference, ours = reference_parts(numerics), interpreted_parts(numerics)
    wanted_TV = logits(side_by_side(reference, ours, seen), tmp_path / "both")
    attended = [one for one in seen if one.argument == "out_TND"]
    has_moved = torch.cat([(one.found != one.wanted).flatten() for one in attended])
    moved = float(has_moved.float().mean())
    # Weights are off by 2^-9 of themselves at most, so outputs by less than half a step.
    assert 0 < moved < 0.5
    generator = torch.Generator().manual_seed(seed_of(request))
    enlarged = []
    for number in range(3):
        stepped = attending(reference, SteppedAttention(moved, generator))
        stepped_TV = logits(stepped, tmp_path / f"steps-{number}")
        enlarged.append(float(row_errors(stepped_TV, wanted_TV).median()))
    found_TV = logits(ours, tmp_path / "ours")
    assert float(row_errors(found_TV, wanted_TV).median()) <= 1.5 * max(enlarged)
    # Without the enlarging: a step at every output, and nothing behind it.
    assert min(enlarged) > 10 * BF16_STEP
