"""Does the library's work arrive at the interface, and does it get only what it computes rightly?

The stand-in has the library's signatures, refuses what the library asserts against, and computes
with the twin. The library itself is compared where it can be imported; on a device the contract
suite runs on it.
"""

import inspect
import warnings
from importlib import import_module
from typing import Any

import importlib_metadata
import pytest
import torch
from deepinfer_core.interfaces.operators.catalogue import Build, Kernels
from deepinfer_core.interfaces.transform import TransformSpec
from deepinfer_core.reference.transform import ReferenceTransform
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.seeds import seed_of
from deepinfer_nvidia.probe import TILE_KERNELS
from deepinfer_nvidia.transform.tile_kernels import TileKernelsCalls, TileKernelsTransform

TWIN = ReferenceTransform()
PLAN = TWIN.plan(TransformSpec(hidden_width=128, streams=4, compute="bfloat16"), 128)
BF16, FP32 = torch.bfloat16, torch.float32


class OtherKernels(Kernels):
    """Notes which kernels of the distribution are asked for, and runs none."""

    def __init__(self) -> None:
        self.called: list[str] = []

    @property
    def built(self) -> int:
        return 0

    def call(self, build: Build, spec: Any, tuning: Any, /, **tensors: torch.Tensor) -> None:
        self.called.append(build.__module__.rpartition(".")[2])


@pytest.fixture
def generator(request: pytest.FixtureRequest) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(request))


@pytest.fixture
def others() -> OtherKernels:
    return OtherKernels()


@pytest.fixture
def component(library: Any, others: OtherKernels) -> TileKernelsTransform:
    calls = TileKernelsCalls(
        norm_forward=library.norm_forward,
        apply_rotary=library.apply_rotary,
        mhc_pre_apply_mix_fwd=library.mhc_pre_apply_mix_fwd,
        mhc_post_fwd=library.mhc_post_fwd,
    )
    return TileKernelsTransform(others, calls)


def noise(generator: torch.Generator, *shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(*shape, generator=generator).to(dtype)


def empty(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.full(shape, torch.nan, dtype=dtype)


@pytest.mark.parametrize("dtype", [BF16, FP32])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_norm_of_one_dtype_is_the_librarys(
    component: TileKernelsTransform,
    library: Any,
    rows: int,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    """Rows of a wider product, also at a distance that the library refuses, and heads as rows."""
    wide_TD, odd_TD = (noise(generator, rows, width, dtype=dtype) for width in (160, 152))
    weight_D = noise(generator, 48, dtype=dtype)
    for x in (wide_TD[:, 16:64], odd_TD[:, 16:64], wide_TD[:, :144].reshape(rows, 3, 48)):
        got, want = empty(*x.shape, dtype=dtype), empty(*x.shape, dtype=dtype)
        component.rms_norm(PLAN, x, weight_D, 1e-6, got)
        TWIN.rms_norm(PLAN, x, weight_D, 1e-6, want)
        assert_same_bits(got, want)
    assert library.called == ["norm", "norm", "norm"]


@pytest.mark.parametrize(
    ("width", "dtype", "weight_dtype", "out_dtype"),
    [
        (48, FP32, BF16, FP32),
        (48, FP32, FP32, BF16),
        (40, BF16, BF16, BF16),
        (8208, BF16, BF16, BF16),
    ],
)
def test_another_norm_is_not_the_librarys(
    component: TileKernelsTransform,
    library: Any,
    others: OtherKernels,
    width: int,
    dtype: torch.dtype,
    weight_dtype: torch.dtype,
    out_dtype: torch.dtype,
) -> None:
    x_TD, weight_D = torch.ones(2, width, dtype=dtype), torch.ones(width, dtype=weight_dtype)
    component.rms_norm(PLAN, x_TD, weight_D, 1e-6, empty(2, width, dtype=out_dtype))
    assert (library.called, others.called) == ([], ["transform_rms_norm"])


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("rows", [1, 4])
def test_a_rotation_of_64_channels_is_the_librarys(
    component: TileKernelsTransform,
    library: Any,
    rows: int,
    inverse: bool,
    generator: torch.Generator,
) -> None:
    """In place, on a slice of a wider product, and into another buffer."""
    wide_THD = noise(generator, rows, 2, 3 * 96).view(rows, 6, 96)
    angle_TP = torch.rand(rows, 32, generator=generator)
    cosine_TP, sine_TP = angle_TP.cos(), angle_TP.sin()
    for x_THD in (wide_THD, wide_THD[:, :2], wide_THD[:, 3:4]):
        want, elsewhere = empty(*x_THD.shape), empty(*x_THD.shape)
        TWIN.rope(PLAN, x_THD, cosine_TP, sine_TP, want, inverse=inverse)
        component.rope(PLAN, x_THD, cosine_TP, sine_TP, elsewhere, inverse=inverse)
        assert_same_bits(elsewhere, want)
        component.rope(PLAN, x_THD, cosine_TP, sine_TP, x_THD, inverse=inverse)
        assert_same_bits(x_THD.contiguous(), want)
    assert library.called == ["rotation"] * 6


@pytest.mark.parametrize(("width", "pairs"), [(96, 8), (68, 32)])
def test_another_rotation_is_not_the_librarys(
    component: TileKernelsTransform,
    library: Any,
    others: OtherKernels,
    width: int,
    pairs: int,
) -> None:
    """Few pairs, and heads that are no whole vectors apart."""
    x_THD, angle_TP = torch.ones(2, 3, width, dtype=BF16), torch.ones(2, pairs)
    component.rope(PLAN, x_THD, angle_TP, angle_TP, x_THD)
    assert (library.called, others.called) == ([], ["transform_rope"])


def test_streams_are_mixed_by_the_library(
    component: TileKernelsTransform, library: Any, generator: torch.Generator
) -> None:
    """Collapse and expansion; the latter in place as well."""
    trunk_TSD, y_TD = noise(generator, 3, 4, 128), noise(generator, 3, 128)
    pre_TS, post_TS = (noise(generator, 3, 4, dtype=FP32) for _ in range(2))
    comb_TSS = noise(generator, 3, 4, 4, dtype=FP32)
    got, want = empty(3, 128), empty(3, 128)
    component.mhc_collapse(PLAN, trunk_TSD, pre_TS, got)
    TWIN.mhc_collapse(PLAN, trunk_TSD, pre_TS, want)
    assert_same_bits(got, want)
    got, want = empty(3, 4, 128), empty(3, 4, 128)
    TWIN.mhc_expand(PLAN, trunk_TSD, y_TD, post_TS, comb_TSS, want)
    component.mhc_expand(PLAN, trunk_TSD, y_TD, post_TS, comb_TSS, got)
    assert_same_bits(got, want)
    component.mhc_expand(PLAN, trunk_TSD, y_TD, post_TS, comb_TSS, trunk_TSD)
    assert_same_bits(trunk_TSD, want)
    assert library.called == ["collapse", "expansion", "expansion"]


@pytest.mark.parametrize(("width", "dtype"), [(64, BF16), (128, FP32)])
def test_other_streams_are_not_mixed_by_the_library(
    component: TileKernelsTransform,
    library: Any,
    others: OtherKernels,
    width: int,
    dtype: torch.dtype,
) -> None:
    trunk_TSD, y_TD = torch.ones(2, 4, width, dtype=dtype), torch.ones(2, width, dtype=dtype)
    mix_TS, comb_TSS = torch.ones(2, 4), torch.ones(2, 4, 4)
    component.mhc_collapse(PLAN, trunk_TSD, mix_TS, empty(2, width, dtype=dtype))
    component.mhc_expand(PLAN, trunk_TSD, y_TD, mix_TS, comb_TSS, trunk_TSD)
    assert library.called == []
    assert others.called == ["transform_mhc_collapse", "transform_mhc_expand"]


def test_what_the_library_would_do_otherwise_stays_with_the_kernels(
    component: TileKernelsTransform, library: Any, others: OtherKernels
) -> None:
    """Rounding, routing and activation at shapes that the library takes."""
    x_TD = torch.ones(2, 128, dtype=BF16)
    component.fake_quantise(PLAN, x_TD, "mxfp8", empty(2, 128))
    component.swiglu(PLAN, x_TD, None, 10.0, empty(2, 64))
    bias_E, image_T = torch.zeros(8), torch.zeros(2, dtype=torch.bool)
    expert_Tk = torch.empty(2, 2, dtype=torch.int64)
    weight_Tk = empty(2, 2, dtype=FP32)
    component.gate_topk(PLAN, torch.ones(2, 8), bias_E, bias_E, image_T, 1.0, expert_Tk, weight_Tk)
    assert library.called == []
    assert others.called == ["transform_cast", "transform_swiglu", "transform_gate_topk"]


def test_no_row_is_no_call(
    component: TileKernelsTransform, library: Any, others: OtherKernels
) -> None:
    trunk_TSD, y_TD = empty(0, 4, 128), empty(0, 128)
    mix_TS, comb_TSS = torch.ones(0, 4), torch.ones(0, 4, 4)
    component.rms_norm(PLAN, y_TD, torch.ones(128, dtype=BF16), 1e-6, y_TD)
    component.rope(PLAN, trunk_TSD, torch.ones(0, 32), torch.ones(0, 32), trunk_TSD)
    component.mhc_collapse(PLAN, trunk_TSD, mix_TS, y_TD)
    component.mhc_expand(PLAN, trunk_TSD, y_TD, mix_TS, comb_TSS, trunk_TSD)
    assert (library.called, others.called) == ([], [])


def test_what_the_library_compiles_is_counted_once(component: TileKernelsTransform) -> None:
    """For a width, whatever the rows."""
    for rows, width in ((1, 128), (7, 128), (3, 256), (7, 128)):
        x_TD = torch.ones(rows, width, dtype=BF16)
        component.rms_norm(PLAN, x_TD, x_TD[0].clone(), 1e-6, empty(rows, width))
    assert component.kernels_built == 2


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("quant", "norm_forward"),
        ("transform", "apply_rotary"),
        ("mhc", "mhc_pre_apply_mix_fwd"),
        ("mhc", "mhc_post_fwd"),
    ],
)
def test_the_stand_in_has_the_librarys_signatures(library: Any, module: str, name: str) -> None:
    """Names, order and defaults of the arguments."""
    fix = f"pip install --no-deps --ignore-requires-python tile_kernels=={TILE_KERNELS[-1]}"
    try:
        release = importlib_metadata.version("tile_kernels")
    except importlib_metadata.PackageNotFoundError:
        pytest.skip(f"needs tile_kernels: {fix}")
    assert release in TILE_KERNELS
    with warnings.catch_warnings():
        # Deprecations of the library's own, at its import.
        warnings.simplefilter("ignore")
        theirs = inspect.signature(getattr(import_module(f"tile_kernels.{module}"), name))
    ours = inspect.signature(getattr(library, name))

    def shape(signature: inspect.Signature) -> list[tuple[str, Any]]:
        return [(item.name, item.default) for item in signature.parameters.values()]

    assert shape(theirs) == shape(ours)
