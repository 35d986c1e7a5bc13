"""Do the row-wise operators keep their contract when their kernels are interpreted?

The suite's sweeps over batches have the row counts around powers of two here, where each takes the
interpreter a while, and all of them compiled on a device. The one of the mixes runs only there, as
interpreted products follow the host's library of matrix products.
"""

from typing import Any, ClassVar

import pytest
import torch
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.operators.catalogue import Build, Kernels
from deepinfer_core.interfaces.transform import MixSpec, Transform, TransformSpec
from deepinfer_core.reference.transform import ReferenceTransform
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts import TransformContract
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.tiles import InterpretedKernels
from deepinfer_nvidia.transform import streams
from deepinfer_nvidia.transform.streams import products_spec, products_tuning
from deepinfer_nvidia.transform.tilelang import TileLangTransform

KERNELS = InterpretedKernels()
TWIN = ReferenceTransform()
SPEC = TransformSpec(hidden_width=64, streams=4, compute="bfloat16")
PLAN = TWIN.plan(SPEC, 128)


class TestTransform(TransformContract):
    """The whole suite, but for fp64, which the kernels refuse."""

    compute_dtypes: ClassVar[tuple[str, ...]] = ("bfloat16", "float32")
    row_counts = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 69, 70)

    @pytest.fixture
    def component(self) -> TileLangTransform:
        return TileLangTransform(KERNELS)

    def test_the_mixes_of_a_row_do_not_depend_on_its_batch(
        self, component: Transform, compute: str, generator: torch.Generator
    ) -> None:
        pytest.skip("the host's matrix product sums in another order elsewhere in a tile")


class RecordingKernels(Kernels):
    """Keeps the tensors of the last call and runs nothing."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}

    def call(self, build: Build, spec: Any, tuning: Any, /, **tensors: torch.Tensor) -> None:
        self.tensors = tensors


@pytest.fixture
def generator(request: pytest.FixtureRequest) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(request))


@pytest.fixture
def component() -> TileLangTransform:
    return TileLangTransform(KERNELS)


def noise(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator).bfloat16()


def both(
    component: TileLangTransform, operator: str, out: torch.Tensor, *arguments: object
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result of an operator whose output comes last, and of its twin."""
    want = torch.empty_like(out)
    getattr(component, operator)(PLAN, *arguments, out)
    getattr(TWIN, operator)(PLAN, *arguments, want)
    return out, want


def test_projections_are_split_when_they_are_prepared(
    component: TileLangTransform, generator: torch.Generator
) -> None:
    """Into the parts that the products read, and nothing else is taken."""
    fn_MK = torch.randn(24, 4 * 64, generator=generator)
    part_NK = component.prepare_mixes(fn_MK)
    assert (part_NK.shape, part_NK.dtype) == ((80, 4 * 64), torch.bfloat16)
    assert bool((sum(part_NK[i : i + 24].double() for i in (48, 24, 0)) == fn_MK.double()).all())
    outs = torch.empty(1, 4), torch.empty(1, 4), torch.empty(1, 4, 4)
    trunk_TSD = noise(generator, 1, 4, 64)
    spec = MixSpec(sinkhorn_iterations=1, eps=1e-6, norm_eps=1e-20)
    with pytest.raises(NotSupported, match="bfloat16"):
        component.mhc_mixes(PLAN, trunk_TSD, fn_MK, fn_MK[:, 0], fn_MK[0, :3], spec, *outs)


def test_many_rows_have_runs_of_pieces_and_the_same_mixes(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten pieces of 128 channels: one run, which fills a device of one multiprocessor."""
    width, spec = 320, MixSpec(sinkhorn_iterations=2, eps=1e-6, norm_eps=1e-20)
    trunk_TSD = noise(generator, 65, 4, width)
    fn_MK = torch.randn(24, 4 * width, generator=generator) / (4 * width) ** 0.5
    rest = fn_MK[:, 0].contiguous(), torch.ones(3), spec

    def mixes(by: Transform) -> torch.Tensor:
        pre, post, comb = (torch.empty(65, 4, *more) for more in ((), (), (4,)))
        by.mhc_mixes(PLAN, trunk_TSD, by.prepare_mixes(fn_MK), *rest, pre, post, comb)
        return torch.cat([pre, post, comb.flatten(1)], 1)

    want, pieces = mixes(TWIN), []
    # A mix is off by the 1280 roundings of a sum of absolute products of 30 or so; a power is off
    # by as much of itself. Powers of a row add up to one, and normalisation makes none larger.
    bound = {"rtol": 0, "atol": 2 * 1280 * 30 * 2.0**-24}
    for cores in (132, 1):
        monkeypatch.setattr(streams, "_CORES", cores)
        pieces.append(products_spec(4 * width, 24, "bfloat16", 65).pieces)
        torch.testing.assert_close(mixes(TileLangTransform(KERNELS)), want, **bound)
    assert pieces == [10, 1]


def test_blocks_add_up_runs_where_those_fill_the_device() -> None:
    """4096 rows of the model are 32 tiles by 4 runs, for 132 multiprocessors; 4225 start anew."""
    found = {}
    for rows in (1, 64, 65, 3456, 3457, 4096, 4225, 8192):
        spec = products_spec(20480, 24, "bfloat16", rows)
        tuning = products_tuning(spec, rows)
        found[rows] = spec.run, tuning.tile_rows, tuning.tile_width
    few, more, many = (1, 64, 128), (1, 64, 64), (10, 128, 128)
    assert found == {
        1: few, 64: few, 65: more, 3456: more, 3457: many, 4096: many, 4225: more, 8192: many
    }  # fmt: skip


@pytest.mark.parametrize("rows", [1, 5])
def test_slices_of_rows_are_rounded_where_they_lie(
    component: TileLangTransform, rows: int, generator: torch.Generator
) -> None:
    x_TD = noise(generator, rows, 3 * 64)[:, 64:128]
    assert_same_bits(
        *both(component, "fake_quantise", torch.empty(rows, 64).bfloat16(), x_TD, "mxfp8")
    )


def test_channels_that_lie_apart_are_copied(
    component: TileLangTransform, generator: torch.Generator
) -> None:
    x_TD = noise(generator, 64, 5).t()
    out = torch.empty(5, 64).bfloat16()
    assert_same_bits(*both(component, "fake_quantise", out, x_TD, "mxfp8"))


def test_addresses_between_vectors_are_copied(
    component: TileLangTransform, generator: torch.Generator
) -> None:
    x_TD = noise(generator, 5, 72)[:, 1:65]
    out = torch.empty(5, 64).bfloat16()
    assert_same_bits(*both(component, "fake_quantise", out, x_TD, "mxfp8"))


def test_heads_are_turned_in_a_slice_of_longer_rows(
    component: TileLangTransform, generator: torch.Generator
) -> None:
    """What lies beside the slice stays."""
    rows_TX = noise(generator, 3, 4 * 32 + 64)
    want_TX = rows_TX.clone()
    angle_TP = torch.rand(3, 8, generator=generator)
    for transform, x_TX in ((component, rows_TX), (TWIN, want_TX)):
        x_THD = x_TX[:, 64:].view(3, 4, 32)
        transform.rope(PLAN, x_THD, angle_TP.cos(), angle_TP.sin(), x_THD)
    assert_same_bits(rows_TX, want_TX)


def test_norm_and_activation_read_slices(
    component: TileLangTransform, generator: torch.Generator
) -> None:
    """The same bits as from rows without gaps."""
    wide_TX = noise(generator, 4, 192)
    weight_D = noise(generator, 64)
    results = []
    for x_TD in (wide_TX[:, 64:128], wide_TX[:, 64:128].contiguous()):
        normed, active = torch.empty(4, 64).bfloat16(), torch.empty(4, 32).bfloat16()
        component.rms_norm(PLAN, x_TD, weight_D, 1e-20, normed)
        component.swiglu(PLAN, x_TD, None, 10.0, active)
        results.append(torch.cat((normed, active), 1))
    assert_same_bits(*results)


def test_keys_and_values_are_slices_of_one_product(
    component: TileLangTransform, generator: torch.Generator
) -> None:
    """As the model passes them; the same bits as from tensors of their own."""
    trunk_TSD, projected = noise(generator, 3, 4, 64), noise(generator, 3, 5, 64)
    weights = noise(generator, 2, 4, 64).unbind()
    image_T = torch.tensor([False, True, False])
    results = []
    for key, value in (
        (projected[:, :4], projected[:, 4]),
        (projected[:, :4].contiguous(), projected[:, 4].contiguous()),
    ):
        out = torch.empty_like(trunk_TSD)
        component.engram_gate(PLAN, trunk_TSD, key, value, *weights, image_T, 1e-20, out)
        results.append(out)
    assert_same_bits(*results)


def test_keys_and_values_are_not_copied(generator: torch.Generator) -> None:
    """A prompt of 4096 rows has 210 MB of them."""
    projected, trunk_TSD = noise(generator, 3, 5, 64), noise(generator, 3, 4, 64)
    weight_SD, image_T = noise(generator, 4, 64), torch.zeros(3, dtype=torch.bool)
    kernels = RecordingKernels()
    TileLangTransform(kernels).engram_gate(
        PLAN,
        trunk_TSD,
        projected[:, :4],
        projected[:, 4],
        weight_SD,
        weight_SD,
        image_T,
        1e-20,
        trunk_TSD,
    )
    assert kernels.tensors["key_TSD"].data_ptr() == projected.data_ptr()
    assert kernels.tensors["value_TD"].data_ptr() == projected[:, 4].data_ptr()


def test_no_kernel_runs_without_rows(component: TileLangTransform) -> None:
    calls = KERNELS.calls
    nothing = torch.empty(0, 64).bfloat16()
    component.rms_norm(PLAN, nothing, torch.ones(64), 1e-20, nothing)
    component.fake_quantise(PLAN, nothing, "mxfp8", nothing)
    component.swiglu(PLAN, nothing, None, 10.0, nothing[:, :32])
    component.mhc_collapse(PLAN, torch.empty(0, 4, 64), torch.empty(0, 4), torch.empty(0, 64))
    assert KERNELS.calls == calls


def test_one_kernel_serves_every_number_of_rows(
    component: TileLangTransform, generator: torch.Generator
) -> None:
    programs = None
    for rows in (2, 1, 7, 33):
        x_TD = noise(generator, rows, 64)
        component.rms_norm(PLAN, x_TD, torch.ones(64), 0.25, torch.empty_like(x_TD))
        if programs is None:
            programs = len(KERNELS.programs)
    assert len(KERNELS.programs) == programs
