"""Does a weight give the same products however it is kept, and only the experts that have rows?"""

from types import SimpleNamespace

import pytest
import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.gemm import DenseSpec, GroupedSpec
from deepinfer_core.numeric import quantise
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference.gemm import ReferenceGemm, StoredWeight, WidenedWeight, build
from deepinfer_core.testing.bits import assert_same_bits

FORMATS = ["fp8_32x32", "mxfp4", "mxfp8", "bfloat16"]


def context(compute: str) -> BuildContext:
    return BuildContext(device="cpu", needs=ModelNeeds(compute=compute))


@pytest.mark.parametrize("weight_format", FORMATS)
def test_stored_and_widened_weights_give_the_same_bits(
    weight_format: str, generator: torch.Generator
):
    weight = quantise(torch.randn(40, 64, generator=generator), weight_format)
    x = torch.randn(9, 64, generator=generator).to(torch.bfloat16)
    spec = DenseSpec(in_width=64, out_width=40, activation_format="mxfp8", out_dtype="float32")
    results = []
    for is_widened in (True, False):
        gemm, out = ReferenceGemm(is_widened=is_widened), torch.empty(9, 40)
        gemm.run(gemm.plan(spec, 9), x, gemm.prepare(weight), out)
        results.append(out)
    assert_same_bits(results[0], results[1])


@pytest.mark.parametrize("weight_format", ["mxfp4", "fp8_32x32", "bfloat16"])
def test_stored_and_widened_experts_give_the_same_bits(
    weight_format: str, generator: torch.Generator
):
    weight = quantise(torch.randn(3, 40, 64, generator=generator), weight_format)
    x = torch.randn(9, 64, generator=generator)
    spec = GroupedSpec(
        experts=3, in_width=64, out_width=40, activation_format="float32", out_dtype="float32"
    )
    results = []
    for is_widened in (True, False):
        gemm, out = ReferenceGemm(is_widened=is_widened), torch.empty(9, 40)
        plan = gemm.plan_experts(spec, 9)
        gemm.run_experts(plan, x, gemm.prepare_experts(weight), torch.tensor([4, 4, 9]), out)
        results.append(out)
    assert_same_bits(results[0], results[1])


def test_stored_weights_keep_their_size_and_widened_ones_take_four_bytes_a_number(
    generator: torch.Generator,
):
    weight = quantise(torch.randn(64, 64, generator=generator), "fp8_32x32")
    assert ReferenceGemm(is_widened=False).prepare(weight).memory_bytes == 64 * 64 + 4
    assert ReferenceGemm().prepare(weight).memory_bytes == 4 * 64 * 64


def test_an_expert_without_rows_is_not_widened(
    monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
):
    widened = []
    original = StoredWeight.widen
    monkeypatch.setattr(
        StoredWeight,
        "widen",
        lambda self, expert: widened.append(expert) or original(self, expert),
    )
    weight = quantise(torch.randn(4, 32, 32, generator=generator), "mxfp4")
    gemm = ReferenceGemm(is_widened=False)
    spec = GroupedSpec(
        experts=4, in_width=32, out_width=32, activation_format="float32", out_dtype="float32"
    )
    plan, x = gemm.plan_experts(spec, 5), torch.randn(5, 32, generator=generator)
    ends = torch.tensor([0, 2, 2, 5])
    gemm.run_experts(plan, x, gemm.prepare_experts(weight), ends, torch.empty(5, 32))
    assert widened == [1, 3]


@pytest.mark.parametrize(
    ("compute", "dtype"),
    [("bfloat16", torch.float32), ("float32", torch.float32), ("float64", torch.float64)],
)
def test_the_compute_dtype_decides_what_weights_are_widened_to(compute: str, dtype: torch.dtype):
    prepared = build(None, context(compute)).prepare(quantise(torch.ones(4, 32), "bfloat16"))
    assert isinstance(prepared, WidenedWeight)
    assert prepared.wide_NK.dtype == dtype


@pytest.mark.parametrize(
    ("weights", "kind"), [("widened", WidenedWeight), ("stored", StoredWeight)]
)
def test_the_option_decides_how_weights_are_kept(weights: str, kind: type):
    gemm = build(SimpleNamespace(weights=weights), context("bfloat16"))
    assert isinstance(gemm.prepare(quantise(torch.ones(4, 32), "bfloat16")), kind)


def test_a_result_in_a_quantised_format_is_refused_when_planned():
    spec = DenseSpec(in_width=64, out_width=40, activation_format="bfloat16", out_dtype="mxfp8")
    with pytest.raises(NotSupported, match="products in mxfp8"):
        ReferenceGemm().plan(spec, 1)
