"""Do compiled row operators give the bits of the reference where no sum is involved?"""

import pytest
import torch
from deepinfer_core.config.kernel_cache import kernel_cache_folder
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.transform import EngramHash, Transform, TransformSpec
from deepinfer_core.native.transform import CpuTransform
from deepinfer_core.numeric import fake_quantise
from deepinfer_core.reference.transform import ReferenceTransform
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.suite import GuardedBuffer
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.tolerance import assert_within

PLAN = Plan(max_rows=100)
DTYPES = [torch.bfloat16, torch.float32]
WIDTHS = [1, 15, 16, 17, 64, 250]


@pytest.fixture
def generator(request: pytest.FixtureRequest) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(request))


@pytest.fixture(scope="module")
def transform() -> CpuTransform:
    return CpuTransform(kernel_cache_folder())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_streams_collapse_and_expand_with_the_bits_of_the_reference(
    transform: CpuTransform, dtype: torch.dtype, width: int, generator: torch.Generator
) -> None:
    trunk_TSD = torch.randn(5, 4, width, generator=generator).to(dtype)
    y_TD = torch.randn(5, width, generator=generator).to(dtype)
    pre_TS, post_TS = (torch.randn(5, 4, generator=generator) for _ in range(2))
    comb_TSS = torch.randn(5, 4, 4, generator=generator)

    def run(component: Transform) -> tuple[torch.Tensor, torch.Tensor]:
        collapsed, expanded = torch.empty_like(y_TD), torch.empty_like(trunk_TSD)
        component.mhc_collapse(PLAN, trunk_TSD, pre_TS, collapsed)
        component.mhc_expand(PLAN, trunk_TSD, y_TD, post_TS, comb_TSS, expanded)
        return collapsed, expanded

    for got, want in zip(run(transform), run(ReferenceTransform()), strict=True):
        assert_same_bits(got, want)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pairs", [0, 1, 8, 32])
def test_rotations_have_the_bits_of_the_reference(
    transform: CpuTransform,
    dtype: torch.dtype,
    pairs: int,
    inverse: bool,
    generator: torch.Generator,
) -> None:
    x_THD = torch.randn(5, 3, 64, generator=generator).to(dtype)
    angle_TP = 6 * torch.rand(5, pairs, generator=generator)
    got, want = torch.empty_like(x_THD), torch.empty_like(x_THD)
    for component, out in ((transform, got), (ReferenceTransform(), want)):
        component.rope(PLAN, x_THD, angle_TP.cos(), angle_TP.sin(), out, inverse=inverse)
    assert_same_bits(got, want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "width"), [("fp4_e4m3x16", 48), ("mxfp4", 32), ("mxfp8", 96)])
def test_rounding_has_the_bits_of_the_formats_at_every_size(
    transform: CpuTransform,
    dtype: torch.dtype,
    name: str,
    width: int,
    generator: torch.Generator,
) -> None:
    # 48 channels are three groups of 16 but one and a half of the kernel's 32, and so is the end of
    # an odd number of rows.
    scale_T1 = torch.exp2(torch.randint(-140, 126, (61, 1), generator=generator).double())
    x_TD = (torch.randn(61, width, generator=generator).double() * scale_T1).to(dtype)
    out = GuardedBuffer(x_TD.shape, dtype, "cpu")
    transform.fake_quantise(PLAN, x_TD, name, out.tensor)
    assert_same_bits(out.check(), fake_quantise(x_TD, name))


@pytest.mark.parametrize("columns", [1, 6, 24])
def test_hashes_are_those_of_the_reference(
    transform: CpuTransform, columns: int, generator: torch.Generator
) -> None:
    ids_TN = torch.randint(0, 99092, (50, 4), generator=generator)
    spec = EngramHash(
        multiplier_N=torch.randint(1, 9 * 10**13, (4,), generator=generator),
        prime_C=torch.randint(2, 10**7, (columns,), generator=generator),
        offset_C=torch.randint(0, 10**9, (columns,), generator=generator),
        order_C=torch.randint(2, 5, (columns,), generator=generator),
    )
    got, want = (torch.empty(50, columns, dtype=torch.int64) for _ in range(2))
    transform.engram_rows(PLAN, ids_TN, spec, got)
    ReferenceTransform().engram_rows(PLAN, ids_TN, spec, want)
    assert_same_bits(got, want)


def test_the_activation_is_accurate_from_underflow_to_overflow(transform: CpuTransform) -> None:
    # An exponential of two roundings, a sum, a quotient and two products: 8 of the result. Below
    # the normal range the distance of numbers counts, 2^-149, times a gate of up to 110.
    gate_R = torch.linspace(-110, 110, 4001)
    x_R2I = torch.stack((gate_R, torch.ones(4001)), 1)
    out_R1 = torch.empty(4001, 1)
    transform.swiglu(PLAN, x_R2I, None, 1000.0, out_R1)
    gate_R = gate_R.double()
    want_R = gate_R / (1 + torch.exp(-gate_R))
    # From 88.7 on exp(-gate) is infinite in fp32.
    want_R[gate_R < -88.72] = out_R1[gate_R < -88.72, 0].double().clamp(-3e-37, 0)
    assert_within(out_R1[:, 0], want_R, 8 * 2.0**-24 * want_R.abs() + 2.0**-149 * 110)


def test_a_nan_stays_nan(transform: CpuTransform) -> None:
    x_TD = torch.ones(1, 20)
    x_TD[0, 3] = torch.nan
    out_TD = torch.empty(1, 20)
    transform.rms_norm(PLAN, x_TD, torch.ones(20), 1e-6, out_TD)
    assert bool(out_TD.isnan().all())
    active_RI = torch.empty(1, 10)
    transform.swiglu(PLAN, x_TD, None, 10.0, active_RI)
    assert active_RI[0].isnan().tolist() == [channel == 3 for channel in range(10)]
    half_TD = torch.empty(1, 20, dtype=torch.bfloat16)
    transform.rms_norm(PLAN, x_TD, torch.ones(20), 1e-6, half_TD)
    assert bool(half_TD.isnan().all())


def test_keys_and_values_may_be_slices_of_one_projection(
    transform: CpuTransform, generator: torch.Generator
) -> None:
    trunk_TSD = torch.randn(5, 4, 32, generator=generator)
    projected_TXD = torch.randn(5, 5, 32, generator=generator)
    weight_SD = torch.randn(4, 32, generator=generator)
    image_T = torch.zeros(5, dtype=torch.bool)
    key_TSD, value_TD = projected_TXD[:, :4], projected_TXD[:, 4]

    def run(key_TSD: torch.Tensor, value_TD: torch.Tensor) -> torch.Tensor:
        out_TSD = torch.empty_like(trunk_TSD)
        transform.engram_gate(
            PLAN, trunk_TSD, key_TSD, value_TD, weight_SD, weight_SD, image_T, 1e-20, out_TSD
        )
        return out_TSD

    want = run(key_TSD.contiguous(), value_TD.contiguous())
    assert_same_bits(run(key_TSD, value_TD), want)
    turned = key_TSD.transpose(1, 2).contiguous().transpose(1, 2)
    assert_same_bits(run(turned, value_TD), want)


def test_what_the_kernels_were_not_written_for_is_refused(transform: CpuTransform) -> None:
    for streams, compute, word in ((3, "float32", "3 residual streams"), (4, "float64", "float64")):
        with pytest.raises(NotSupported, match=word):
            transform.plan(TransformSpec(hidden_width=8, streams=streams, compute=compute), 1)
    x_TD = torch.zeros(2, 8)
    with pytest.raises(NotSupported, match=r"\(9,\)"):
        transform.rms_norm(PLAN, x_TD, torch.zeros(9), 1.0, x_TD)
    with pytest.raises(NotSupported, match="strides"):
        transform.rms_norm(PLAN, x_TD, torch.zeros(8), 1.0, torch.zeros(8, 2).t())
    with pytest.raises(NotSupported, match="float64"):
        transform.rms_norm(PLAN, x_TD.double(), torch.zeros(8), 1.0, x_TD)
    expert_Tk, weight_Tk = torch.empty(2, 9, dtype=torch.int64), torch.empty(2, 9)
    image_T = torch.zeros(2, dtype=torch.bool)
    with pytest.raises(NotSupported, match="9 experts"):
        transform.gate_topk(
            PLAN, x_TD, torch.zeros(8), torch.zeros(8), image_T, 1.0, expert_Tk, weight_Tk
        )
