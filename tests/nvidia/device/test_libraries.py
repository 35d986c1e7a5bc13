"""Do components around libraries of others keep the contracts of their interfaces on the device?"""

from typing import ClassVar

import importlib_metadata
import pytest
import torch
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.interfaces.gemm import DenseSpec
from deepinfer_core.numeric import QuantTensor
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference.transform import ReferenceTransform
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts import DenseGemmContract, TransformContract
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.tolerance import assert_within, roundoff
from deepinfer_nvidia.gemm import deep_gemm
from deepinfer_nvidia.probe import DEEP_GEMM, TILE_KERNELS
from deepinfer_nvidia.transform import tile_kernels

CONTEXT = BuildContext(device="nvidia", needs=ModelNeeds())
PLAN = Plan(max_rows=1 << 20)


def require(library: str, releases: tuple[str, ...]) -> None:
    """Skip where it is not installed; docs/nvidia.md says how to get it."""
    try:
        found = importlib_metadata.version(library).partition("+")[0]
    except importlib_metadata.PackageNotFoundError:
        pytest.skip(f"needs {library} {releases[-1]}; docs/nvidia.md says how to get it")
    assert found in releases


@pytest.fixture(scope="module")
def transforms() -> tile_kernels.TileKernelsTransform:
    require("tile_kernels", TILE_KERNELS)
    return tile_kernels.build(None, CONTEXT)


@pytest.fixture(scope="module")
def multiplies() -> deep_gemm.DeepGemmDense:
    require("deep_gemm", DEEP_GEMM)
    return deep_gemm.build(None, CONTEXT)


class TestTransform(TransformContract):
    device = "cuda"
    compute_dtypes = ("bfloat16", "float32")
    # Wide enough for the streams that the library mixes.
    width: ClassVar[int] = 256

    @pytest.fixture
    def component(
        self, transforms: tile_kernels.TileKernelsTransform
    ) -> tile_kernels.TileKernelsTransform:
        return transforms


class TestDense(DenseGemmContract):
    device = "cuda"
    compute_dtypes = ("bfloat16", "float32")
    weight_formats = ("fp8_32x32", "mxfp4", "bfloat16", "float32")

    @pytest.fixture
    def component(self, multiplies: deep_gemm.DeepGemmDense) -> deep_gemm.DeepGemmDense:
        return multiplies


@pytest.fixture
def generator(request: pytest.FixtureRequest) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(request))


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("heads", [1, 64])
def test_heads_of_the_model_are_rotated_like_the_twins_and_stand_alone(
    transforms: tile_kernels.TileKernelsTransform,
    heads: int,
    inverse: bool,
    generator: torch.Generator,
) -> None:
    """One rounding for a product and a sum, where the twin has two, and one to bf16."""
    x_THD = torch.randn(70, heads, 512, generator=generator).bfloat16().cuda()
    angle_TP = 6 * torch.rand(70, 32, generator=generator)
    cosine_TP, sine_TP = angle_TP.cos().cuda(), angle_TP.sin().cuda()
    want = torch.empty_like(x_THD)
    ReferenceTransform().rope(PLAN, x_THD, cosine_TP, sine_TP, want, inverse=inverse)
    together = x_THD.clone()
    transforms.rope(PLAN, together, cosine_TP, sine_TP, together, inverse=inverse)
    assert_same_bits(together[..., :448], x_THD[..., :448])
    want = want.cpu().double()
    size = x_THD.cpu().double().abs().amax()
    bound = 6 * roundoff(torch.float32) * size + 2 * roundoff(torch.bfloat16) * want.abs()
    assert_within(together, want, bound)
    for row in (0, 1, 69):
        alone = x_THD[row : row + 1].clone()
        angles = cosine_TP[row : row + 1], sine_TP[row : row + 1]
        transforms.rope(PLAN, alone, *angles, alone, inverse=inverse)
        assert_same_bits(alone[0], together[row])


@pytest.mark.parametrize(
    ("in_width", "out_width", "groups", "out_dtype"),
    [(4096, 4096, 1, "bfloat16"), (5120, 384, 1, "float32"), (4096, 1024, 8, "bfloat16")],
)
def test_rows_of_the_models_products_stand_alone(
    multiplies: deep_gemm.DeepGemmDense,
    in_width: int,
    out_width: int,
    groups: int,
    out_dtype: str,
    generator: torch.Generator,
) -> None:
    """At row counts for which the library chooses other tiles; sums are those of fp64."""
    spec = DenseSpec(
        in_width=in_width,
        out_width=out_width,
        groups=groups,
        activation_format="bfloat16",
        out_dtype=out_dtype,
    )
    data = torch.randn(groups * out_width, in_width, generator=generator).bfloat16().cuda()
    weight = multiplies.prepare(QuantTensor(data=data, scale=None, format="bfloat16"))
    x_TX = torch.randn(600, groups * in_width, generator=generator).bfloat16().cuda()

    def product(rows: int) -> torch.Tensor:
        dtype = getattr(torch, out_dtype)
        out = torch.full((rows, len(data)), torch.nan, dtype=dtype, device="cuda")
        multiplies.run(multiplies.plan(spec, rows), x_TX[:rows], weight, out)
        return out

    together = product(600)
    for rows in (1, 17, 64, 300):
        assert_same_bits(product(rows), together[:rows])
    x_TGK = x_TX[:9].cpu().double().view(9, groups, in_width)
    w_GNK = data.cpu().double().view(groups, out_width, in_width)
    want = torch.einsum("tgk,gnk->tgn", x_TGK, w_GNK).flatten(1)
    size = torch.einsum("tgk,gnk->tgn", x_TGK.abs(), w_GNK.abs()).flatten(1)
    # K products and sums in fp32, and one rounding of the result.
    bound = (in_width + 2) * roundoff(torch.float32) * size
    assert_within(together[:9], want, bound + roundoff(together.dtype) * (want.abs() + bound))
