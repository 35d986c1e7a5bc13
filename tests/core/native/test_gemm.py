"""Do compiled products hold what the contract suite does not ask of every component?"""

import pytest
import torch
from deepinfer_core.config.kernel_cache import kernel_cache_folder
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.gemm import DenseSpec, GroupedSpec
from deepinfer_core.native.gemm import CpuGemm
from deepinfer_core.numeric import QuantTensor, fake_quantise, quantise
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.seeds import seed_of


@pytest.fixture
def generator(request: pytest.FixtureRequest) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(request))


def gemm(threads: int = 1) -> CpuGemm:
    return CpuGemm(kernel_cache_folder(), threads=threads)


def plain(values_NK: torch.Tensor) -> QuantTensor:
    return QuantTensor(data=values_NK, scale=None, format="float32")


def multiply(
    component: CpuGemm,
    x_TK: torch.Tensor,
    weight: QuantTensor,
    *,
    activation_format: str = "float32",
    groups: int = 1,
    out_dtype: str = "float32",
) -> torch.Tensor:
    rows, width = weight.shape
    spec = DenseSpec(
        in_width=width,
        out_width=rows // groups,
        groups=groups,
        activation_format=activation_format,
        out_dtype=out_dtype,
    )
    out_TN = torch.empty(len(x_TK), rows, dtype=getattr(torch, out_dtype))
    component.run(component.plan(spec, len(x_TK)), x_TK, component.prepare(weight), out_TN)
    return out_TN


def hard_inputs(generator: torch.Generator) -> torch.Tensor:
    """Rows of 32 at every scale, with ties, both zeros, subnormals, infinities and NaN."""
    scale_T1 = torch.exp2(torch.randint(-140, 126, (200, 1), generator=generator).double())
    x_TK = (torch.randn(200, 32, generator=generator).double() * scale_T1).float()
    # Midpoints between neighbours of e4m3, for a largest value of 448.
    ties = torch.tensor([448.0, 1.0625, 1.1875, -2.125, 2.0**-10, 3 * 2.0**-10, -(2.0**-11)])
    x_TK[0, :7] = ties
    x_TK[1, :4] = torch.tensor([0.0, -0.0, 2.0**-149, -(2.0**-149)])
    x_TK[2, 3], x_TK[3, 5], x_TK[4, 7] = torch.nan, torch.inf, -torch.inf
    x_TK[5] = torch.nan
    x_TK[6] = 0
    return x_TK


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_inputs_are_rounded_to_mxfp8_bit_for_bit(
    dtype: torch.dtype, generator: torch.Generator
) -> None:
    # One channel of one group is kept at a time by a weight that is zero elsewhere; rows with an
    # infinity or a NaN have it in every output and are compared by the channel itself.
    x_TK = hard_inputs(generator).to(dtype)
    got = multiply(gemm(), x_TK, plain(torch.eye(32)), activation_format="mxfp8")
    want = fake_quantise(x_TK, "mxfp8").float()
    finite = want.isfinite().all(1)
    # Adding zeros makes +0 of -0.
    assert_same_bits(got[finite], want[finite] + 0.0)
    assert bool(got[~finite].isnan().any(1).all())


@pytest.mark.parametrize("outputs", [1, 15, 16, 17, 64, 127, 128, 129, 200])
def test_every_output_has_its_place(outputs: int) -> None:
    x_TK = torch.eye(7, 8)
    w_NK = torch.arange(outputs * 8, dtype=torch.float32).view(outputs, 8)
    want_TN = w_NK[:, :7].t().clone(memory_format=torch.contiguous_format)
    assert_same_bits(multiply(gemm(), x_TK, plain(w_NK)), want_TN)


@pytest.mark.parametrize("outputs", [5, 16, 24])
def test_groups_may_share_a_strip(outputs: int, generator: torch.Generator) -> None:
    x_TX = torch.randn(5, 3 * 32, generator=generator)
    weight = plain(torch.randn(3 * outputs, 32, generator=generator))
    got = multiply(gemm(), x_TX, weight, groups=3)
    for group in range(3):
        part = plain(weight.data[group * outputs : (group + 1) * outputs])
        alone = multiply(gemm(), x_TX[:, group * 32 : (group + 1) * 32], part)
        assert_same_bits(got[:, group * outputs : (group + 1) * outputs].contiguous(), alone)


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("groups", [1, 3])
def test_threads_change_no_bit(rows: int, groups: int, generator: torch.Generator) -> None:
    x_TX = torch.randn(rows, groups * 64, generator=generator)
    weight = quantise(torch.randn(groups * 300, 64, generator=generator), "fp8_32x32")
    one, three = (
        multiply(gemm(threads), x_TX, weight, activation_format="mxfp8", groups=groups)
        for threads in (1, 3)
    )
    assert_same_bits(three, one)


def test_threads_change_no_bit_of_experts(generator: torch.Generator) -> None:
    x_RK = torch.randn(40, 64, generator=generator)
    weight = quantise(torch.randn(4, 300, 64, generator=generator), "mxfp4")
    spec = GroupedSpec(
        experts=4, in_width=64, out_width=300, activation_format="mxfp8", out_dtype="bfloat16"
    )
    outs = []
    for threads in (1, 3):
        component = gemm(threads)
        outs.append(torch.empty(40, 300, dtype=torch.bfloat16))
        component.run_experts(
            component.plan_experts(spec, 40),
            x_RK,
            component.prepare_experts(weight),
            torch.tensor([1, 1, 20, 40]),
            outs[-1],
        )
    assert_same_bits(outs[1], outs[0])


def test_rows_may_lie_apart(generator: torch.Generator) -> None:
    wide_TK = torch.randn(6, 96, generator=generator)
    weight = plain(torch.randn(20, 32, generator=generator))
    want = multiply(gemm(), wide_TK[:, 32:64].contiguous(), weight)
    assert_same_bits(multiply(gemm(), wide_TK[:, 32:64], weight), want)
    by_column_TK = wide_TK.t().contiguous().t()[:, 32:64]
    assert by_column_TK.stride() == (1, 6)
    assert_same_bits(multiply(gemm(), by_column_TK, weight), want)


@pytest.mark.parametrize("format_name", ["fp8_32x32", "mxfp4", "mxfp8", "bfloat16"])
def test_a_weight_takes_two_bytes_a_number_where_that_is_exact(
    format_name: str, generator: torch.Generator
) -> None:
    weight = quantise(torch.randn(32, 64, generator=generator), format_name)
    assert gemm().prepare(weight).memory_bytes == 32 * 64 * 2


def test_a_weight_that_bf16_would_round_stays_in_fp32() -> None:
    values_NK = torch.full((16, 32), 1 + 2.0**-20)
    prepared = gemm().prepare(plain(values_NK))
    assert prepared.memory_bytes == 16 * 32 * 4
    assert_same_bits(prepared.dequantise(), values_NK)


def test_results_in_float64_are_refused_when_they_are_planned() -> None:
    spec = DenseSpec(in_width=32, out_width=16, activation_format="float32", out_dtype="float64")
    with pytest.raises(NotSupported, match="float64"):
        gemm().plan(spec, 1)
