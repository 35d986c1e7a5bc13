"""Does a row have the same bits with every kernel and tile that products are run with?"""

import pytest
import torch
from deepinfer_core.interfaces.operators.catalogue import Kernels, operator_of
from deepinfer_core.interfaces.operators.gemm import GemmDenseSpec, GemmExpertsSpec
from deepinfer_core.interfaces.operators.tunings import TunedKernel
from deepinfer_core.numeric import QuantTensor, quantise
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.tolerance import assert_within, roundoff
from deepinfer_nvidia.gemm.packing import pack_experts
from deepinfer_nvidia.kernels.catalogue import catalogue
from deepinfer_nvidia.kernels.hopper import gemm_experts
from deepinfer_nvidia.kernels.hopper.gemm_experts import Tuning
from deepinfer_nvidia.kernels.tuning.table import entries, shipped_table

pytestmark = pytest.mark.slow

CHOSEN = [one.choice for choices in shipped_table().choices.values() for one in choices]
DENSE_TILES = [
    *(
        TunedKernel(kernel=one.kernel, tuning=one.tuning)
        for kernel in ("gemm_dense", "hopper/gemm_dense")
        for one in entries(kernel)
    ),
    *CHOSEN,
]
DENSE_TILES = [one for one in dict.fromkeys(DENSE_TILES) if operator_of(one.kernel) == "gemm_dense"]
EXPERT_TUNINGS = [
    *(one.tuning for one in entries("hopper/gemm_experts")),
    *(one.tuning for one in CHOSEN if operator_of(one.kernel) == "gemm_experts"),
]
EXPERT_TUNINGS = list(dict.fromkeys(EXPERT_TUNINGS))
ROWS = [1, 7, 33, 64, 129, 300]
EXPERTS = GemmExpertsSpec(
    experts=3,
    in_width=288,
    out_width=1280,
    x_dtype="bfloat16",
    weight_format="mxfp4",
    out_dtype="float32",
)


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    """Compiled ones."""
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("kernels/hopper need SM90: run nox -s 'device(nvidia)' on an H100 or H200")
    return catalogue().open("")


@pytest.fixture
def generator(request: pytest.FixtureRequest) -> torch.Generator:
    """Seeded from the name of the test."""
    return torch.Generator().manual_seed(seed_of(request))


def dense(kernels: Kernels, tile: TunedKernel, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    (rows, groups, in_width), out_width = x.shape, w.shape[1]
    spec = GemmDenseSpec(in_width=in_width, out_width=out_width, groups=groups, out_dtype="float32")
    out = torch.full((rows, groups, out_width), torch.nan, device="cuda")
    build = catalogue().load(tile.kernel)
    kernels.call(build, spec, tile.tuning, x_TGK=x, weight_GNK=w, out_TGN=out)
    return out.cpu()


def parts(tile: TunedKernel) -> int:
    return getattr(tile.tuning, "parts", 1)


@pytest.mark.parametrize("tile", DENSE_TILES, ids=lambda tile: f"{tile.kernel}-{tile.tuning}")
def test_every_dense_tile_gives_the_bits_of_the_first_with_as_many_parts(
    kernels: Kernels, tile: TunedKernel, generator: torch.Generator
) -> None:
    """Of 21 steps, eight parts have three each and the last none."""
    groups, in_width = (2, 320) if parts(tile) == 1 else (1, 1344)
    x = torch.randn(300, groups, in_width, generator=generator).bfloat16()
    w = torch.randn(groups, 200, in_width, generator=generator).bfloat16()
    want = torch.einsum("tgk,gnk->tgn", x.double(), w.double())
    size = torch.einsum("tgk,gnk->tgn", x.double().abs(), w.double().abs())
    model = next(one for one in DENSE_TILES if parts(one) == parts(tile))
    first = dense(kernels, model, x.cuda(), w.cuda())
    # As many additions as products, in fp32.
    assert_within(first, want, (2 * in_width + 1) * roundoff(torch.float32) * size)
    for rows in ROWS:
        assert_same_bits(dense(kernels, tile, x[:rows].cuda(), w.cuda()), first[:rows])


def experts(
    kernels: Kernels, tuning: Tuning, x: torch.Tensor, packed: torch.Tensor, ends: list[int]
) -> torch.Tensor:
    out = torch.full((len(x), 1280), -77.0, device="cuda")
    ends_E = torch.tensor(ends, dtype=torch.int64, device="cuda")
    kernels.call(
        gemm_experts.build, EXPERTS, tuning, x_RK=x, weight_P=packed, ends_E=ends_E, out_RN=out
    )
    return out.cpu()


@pytest.mark.parametrize("tuning", EXPERT_TUNINGS, ids=str)
def test_every_tile_of_experts_gives_the_bits_of_the_first(
    kernels: Kernels, tuning: Tuning, generator: torch.Generator
) -> None:
    """In the second of three experts, whose first has no rows; rows of nobody stay untouched."""
    weight = quantise(torch.randn(3, 1280, 288, generator=generator), "mxfp4")
    assert weight.scale is not None
    stored = QuantTensor(data=weight.data.cuda(), scale=weight.scale.cuda(), format="mxfp4")
    packed = pack_experts(stored)
    x = torch.randn(303, 288, generator=generator).bfloat16()
    x[300:] = torch.nan
    w = weight.dequantise(torch.float64)[1]
    first = experts(kernels, EXPERT_TUNINGS[0], x.cuda(), packed, [0, 300, 300])
    size = x[:300].double().abs() @ w.abs().t()
    # 288 products, and as many additions, in fp32.
    assert_within(first[:300], x[:300].double() @ w.t(), 577 * roundoff(torch.float32) * size)
    for rows in ROWS:
        got = experts(kernels, tuning, x.cuda(), packed, [0, rows, rows])
        assert_same_bits(got[:rows], first[:rows])
        assert bool((got[rows:] == -77).all())
