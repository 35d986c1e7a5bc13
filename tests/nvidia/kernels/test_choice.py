"""Do the kernels and tiles that launches choose exist: do they fit a core, and divide the work?"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from deepinfer_core.interfaces.operators.attention import KeySourceSpec, SparseAttentionSpec
from deepinfer_core.interfaces.operators.gemm import GemmDenseSpec, GemmExpertsSpec
from deepinfer_core.interfaces.operators.tunings import FastestTuning, TunedKernel
from deepinfer_core.testing.kernel_cases import cases_of
from deepinfer_core.testing.kernel_cases.tuned import tuned_loads
from deepinfer_nvidia.kernels import catalogue as catalogue_module
from deepinfer_nvidia.kernels import choice as choice_module
from deepinfer_nvidia.kernels.catalogue import catalogue
from deepinfer_nvidia.kernels.choice import Choice, Target, choose
from deepinfer_nvidia.kernels.hopper.ring import Tuning as HopperTuning
from deepinfer_nvidia.kernels.product_times import parts_of
from deepinfer_nvidia.kernels.tuning import KernelTuning
from deepinfer_nvidia.kernels.tuning.device_tunings import DeviceTunings
from deepinfer_nvidia.kernels.tuning.table import Table, entries

SHARED_BYTES = 227 * 1024
"""What a block of Hopper can have; a core has 1024 more for each block."""

HOPPER, OTHER = Target(is_hopper=True), Target(is_hopper=False)
ROWS = [1, 7, 8, 9, 16, 17, 33, 64, 65, 128, 129, 511, 513, 4096, 100_000]
MODEL = [(5120, 4608), (2304, 5120)]
EXPERTS = GemmExpertsSpec(
    experts=7,
    in_width=2304,
    out_width=5120,
    x_dtype="bfloat16",
    weight_format="mxfp4",
    out_dtype="float32",
)
ATTENTION = SparseAttentionSpec(
    heads=64,
    head_width=512,
    sources=(KeySourceSpec(number_format="mxfp8", list_capacity=128, rows_per_page=134),),
    compute="bfloat16",
    scale=0.11,
)


def expert_tuning(experts: int, out_width: int, rows: int, target: Target = HOPPER) -> Any:
    spec = replace(EXPERTS, experts=experts, out_width=out_width)
    choice = choose("gemm_experts", spec, target, rows)
    assert choice.kernel == "hopper/gemm_experts"
    return choice.tuning


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("out_width", [24, 64, 4608, 5120])
@pytest.mark.parametrize("experts", [1, 7, 384])
def test_experts_fit_and_divide(rows: int, out_width: int, experts: int) -> None:
    tuning = expert_tuning(experts, out_width, rows)
    assert -(-out_width // 64) % (tuning.groups * tuning.tiles) == 0
    block = tuning.shared_bytes + 16 * tuning.stages + 8 * experts
    assert block <= SHARED_BYTES
    assert tuning.blocks_per_core * (block + 1024) <= SHARED_BYTES + 1024
    assert tuning.depth * tuning.tiles % 2 == 0
    assert 4 % tuning.depth == 0
    assert not tuning.is_halved or tuning.rows % 16 == 0


@pytest.mark.parametrize(("out_width", "groups"), [(4608, 4), (5120, 5)])
def test_a_row_each_for_seven_experts_is_one_wave(out_width: int, groups: int) -> None:
    """7 x 72 and 7 x 80 tiles of 64 channels on 132 cores: 126 and 112 blocks."""
    assert expert_tuning(7, out_width, 7).groups == groups


@pytest.mark.parametrize(("mean", "rows"), [(1, 8), (4, 8), (8, 16), (20, 32), (100, 128)])
def test_tiles_grow_with_the_rows_of_an_expert(mean: int, rows: int) -> None:
    assert expert_tuning(384, 4608, 384 * mean).rows == rows


@pytest.mark.parametrize(
    ("experts", "out_width", "mean", "tile"),
    [
        (7, 5120, 128, (128, 1, True)),
        (7, 4608, 128, (128, 1, True)),
        (7, 5120, 512, (256, 1, True)),
        (7, 4608, 512, (256, 1, True)),
        (48, 5120, 147, (128, 2, False)),
        (48, 4608, 147, (128, 2, False)),
        (48, 5120, 256, (256, 1, True)),
        (48, 4608, 512, (256, 1, True)),
    ],
)
def test_prompts_get_the_tile_that_was_measured_as_the_fastest(
    experts: int, out_width: int, mean: int, tile: tuple[int, int, bool]
) -> None:
    """As in `benchmarks/results/h200_experts.json`; 6 % behind for 128 rows of 4608 channels."""
    tuning = expert_tuning(experts, out_width, experts * mean)
    assert (tuning.rows, tuning.tiles, tuning.is_halved) == tile


def dense(in_width: int, out_width: int, rows: int, target: Target = HOPPER, **more: Any) -> Any:
    spec = GemmDenseSpec(in_width=in_width, out_width=out_width, out_dtype="bfloat16", **more)
    return choose("gemm_dense", spec, target, rows)


def tile_of(choice: Choice) -> tuple[int, int]:
    """Rows and channels of a block."""
    tuning: Any = choice.tuning
    if choice.kernel == "gemm_dense":
        return tuning.rows, tuning.channels
    return 64 * tuning.groups * tuning.tiles, tuning.channels


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("in_width", "out_width"), MODEL)
def test_without_hopper_every_kernel_is_in_tilelang(
    in_width: int, out_width: int, rows: int
) -> None:
    assert dense(in_width, out_width, rows, OTHER).kernel == "gemm_dense"
    assert choose("gemm_experts", EXPERTS, OTHER, rows).kernel == "gemm_experts"
    assert choose("attention_sparse", ATTENTION, OTHER, rows).kernel == "attention_sparse"


@pytest.mark.parametrize(
    ("in_width", "out_width", "rows", "tile"),
    [
        (2304, 5120, 1, (8, 64)),
        (2304, 5120, 16, (16, 64)),
        (4096, 4096, 16, (64, 64)),
        (4096, 4096, 128, (128, 64)),
        (4096, 4096, 256, (128, 64)),
        (4096, 4096, 512, (128, 128)),
        (8192, 5120, 512, (128, 160)),
        (1280, 32768, 64, (64, 128)),
        (8192, 5120, 128, (128, 80)),
        (5120, 384, 16, (64, 16)),
    ],
)
def test_dense_products_get_the_tile_that_was_fastest(
    in_width: int, out_width: int, rows: int, tile: tuple[int, int]
) -> None:
    assert tile_of(dense(in_width, out_width, rows)) == tile


def test_large_tiles_of_tilelang_are_for_devices_without_a_kernel_of_their_own() -> None:
    """Where by their figures they would be the fastest."""
    hopper, other = (Target(is_hopper=is_hopper, cores=78) for is_hopper in (True, False))
    assert tile_of(dense(5120, 5120, 126, other)) == (128, 128)
    assert dense(5120, 5120, 126, hopper).kernel == "hopper/gemm_dense"


@pytest.mark.parametrize(
    ("in_width", "out_width", "groups", "parts"),
    [
        (5120, 32, 1, 8),
        (5120, 512, 1, 8),
        (5120, 513, 1, 4),
        (5120, 1280, 1, 4),
        (5120, 1281, 1, 1),
        (2560, 512, 1, 8),
        (2496, 512, 1, 1),
        (4096, 1024, 8, 1),
        (8192, 5120, 1, 2),
    ],
)
def test_parts_of_k_follow_from_the_widths_and_not_from_the_rows(
    in_width: int, out_width: int, groups: int, parts: int
) -> None:
    """From 2560 inputs on, up to 8 and up to 20 tiles of 64 channels; elsewhere by the table."""
    chosen = [dense(in_width, out_width, rows, groups=groups).tuning for rows in ROWS]
    assert {getattr(tuning, "parts", 1) for tuning in chosen} == {parts}


TUNED_SPECS = [loads[0].case.spec for loads in tuned_loads("gemm_dense")]
TUNINGS = DeviceTunings(HOPPER)
DENSE = dict.fromkeys(
    one.tuning
    for spec in TUNED_SPECS
    for one in TUNINGS.candidates("gemm_dense", spec)
    if one.kernel == "hopper/gemm_dense"
)


@pytest.mark.parametrize(
    "tuning", [*DENSE, *(one.tuning for one in entries("hopper/gemm_dense"))], ids=str
)
def test_dense_tiles_of_hopper_fit_a_core(tuning: Any) -> None:
    """Those of the table, and those that somebody may measure."""
    assert tuning.ring_bytes <= SHARED_BYTES
    assert tuning.rows // tuning.across % tuning.row_box == 0
    assert tuning.channel_box(5120) % 8 == 0
    sums = tuning.rows * tuning.channels * tuning.held
    if tuning.is_spread:
        assert 4 * sums <= tuning.ring_bytes - 16 * tuning.stages
        assert tuning.parts <= 8
        assert tuning.spread_blocks > 1
        assert tuning.parts % tuning.held == 0
    # Those of all parts that a thread has, beside what else it needs.
    in_turn = 1 if tuning.is_spread or tuning.parts == 1 else 2
    threads = 128 * tuning.groups
    assert sums * in_turn // threads <= (tuning.registers or 168) - 32
    assert tuning.registers * threads <= 65536 - 128 * 24


EXPERT_SPECS = [loads[0].case.spec for loads in tuned_loads("gemm_experts")]
EXPERT_TILES = dict.fromkeys(
    one.tuning for spec in EXPERT_SPECS for one in TUNINGS.candidates("gemm_experts", spec)
)


@pytest.mark.parametrize("tuning", EXPERT_TILES, ids=str)
def test_tiles_of_experts_fit_a_core(tuning: Any) -> None:
    """With the ends of as many experts as the model has."""
    blocks, threads = tuning.blocks_per_core, 128 * tuning.groups
    shared_bytes = tuning.shared_bytes + 16 * tuning.stages + 8 * 384
    assert blocks * (shared_bytes + 1024) <= SHARED_BYTES + 1024
    assert tuning.depth * tuning.tiles % 2 == 0
    assert tuning.rows // (2 if tuning.is_halved else 1) % 8 == 0
    usual = 65536 // (blocks * (threads + 32)) // 8 * 8
    assert tuning.tiles * tuning.rows // 2 + 60 <= (tuning.registers or usual)
    assert tuning.registers * threads <= 65536 - 128 * 24


@pytest.mark.parametrize("spec", EXPERT_SPECS, ids=str)
def test_tiles_of_experts_are_proposed_for_their_channels(spec: Any) -> None:
    """Blocks that share a core among them, and tiles between those of the table."""
    proposed = [one.tuning for one in TUNINGS.candidates("gemm_experts", spec)]
    assert not [one for one in proposed if spec.out_width // 64 % (one.groups * one.tiles)]
    assert {one.blocks_per_core for one in proposed} == {1, 2, 3, 4, 5}
    assert {one.rows for one in proposed} >= {8, 16, 32, 48, 64, 96, 128, 160, 192, 256}


@pytest.mark.parametrize("spec", TUNED_SPECS, ids=str)
def test_what_is_picked_may_be_measured_and_so_may_others_with_its_bits(spec: Any) -> None:
    candidates = TUNINGS.candidates("gemm_dense", spec)
    assert len(set(candidates)) == len(candidates)
    for rows in ROWS:
        assert TUNINGS.picked("gemm_dense", spec, rows) in candidates
    alike = [one for one in candidates if TUNINGS.bits(one) == parts_of(spec)]
    assert len(alike) > len({one.tuning for one in entries("gemm_dense")})


@pytest.mark.parametrize("operator", TUNINGS.operators)
def test_what_is_picked_for_a_size_that_is_measured_is_a_candidate(operator: str) -> None:
    for loads in tuned_loads(operator):
        for case in (load.case for load in loads):
            picked = TUNINGS.picked(operator, case.spec, case.rows)
            assert picked in TUNINGS.candidates(operator, case.spec)


@pytest.mark.parametrize("operator", TUNINGS.operators)
def test_every_operator_that_may_be_tuned_has_sizes_that_cover_all_rows(operator: str) -> None:
    for loads in tuned_loads(operator):
        ends = [load.serves[1] for load in loads]
        assert [load.serves[0] for load in loads] == [1, *(end + 1 for end in ends[:-1])]
        assert ends == [*(load.case.rows for load in loads[:-1]), 0]
        assert len({load.case.spec for load in loads}) == 1


def test_blocks_of_a_cluster_may_have_several_parts_of_k_each() -> None:
    one = HopperTuning(channels=64, stages=8, parts=8, is_spread=True, held=4)
    assert (one.spread_blocks, one.threads_of_a_block) == (2, 288)
    assert replace(one, registers=224).threads_of_a_block == 384


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> HopperTuning:
    """A table in which up to 16 rows of 8192 -> 5120 have a choice of their own."""
    tuning = HopperTuning(channels=40, stages=8, parts=2, is_spread=True)
    best = FastestTuning(
        rows=16,
        serves=(1, 16),
        choice=TunedKernel(kernel="hopper/gemm_dense", tuning=tuning),
        seconds=1e-6,
        spread_s=0.0,
    )
    table = Table(kernels={}, choices={("gemm_dense", DIVIDED_SPEC): (best,)})
    for module in (choice_module, catalogue_module):
        monkeypatch.setattr(module, "shipped_table", lambda: table)
    choose.cache_clear()
    return tuning


DIVIDED_SPEC = GemmDenseSpec(in_width=8192, out_width=5120, out_dtype="bfloat16")


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """What is chosen by a table of a test is not remembered."""
    yield
    choose.cache_clear()


def test_what_was_the_fastest_for_a_spec_goes_before_what_should_be(chosen: HopperTuning) -> None:
    usual = {rows: dense(8192, 5120, rows).tuning for rows in (0, 1, 16, 17)}
    assert [usual[rows] == chosen for rows in usual] == [True, True, True, False]
    assert dense(8192, 5112, 16).tuning != chosen
    assert dense(8192, 5120, 16, replace(HOPPER, cores=78)).tuning == replace(chosen, cores=78)
    assert dense(8192, 5120, 16, OTHER).kernel == "gemm_dense"


def test_cases_are_tried_with_what_is_chosen_for_them(chosen: HopperTuning) -> None:
    tune, choices = catalogue().tune, catalogue().choices
    assert tune("hopper/gemm_dense", DIVIDED_SPEC, 16) == chosen
    assert tune("hopper/gemm_dense", DIVIDED_SPEC, 17) != chosen
    assert tune("gemm_dense", DIVIDED_SPEC, 16) != chosen
    assert chosen in choices("hopper/gemm_dense", DIVIDED_SPEC)
    # On small cases too; but K of products that lie side by side is never divided.
    small = replace(DIVIDED_SPEC, in_width=64)
    assert chosen in choices("hopper/gemm_dense", small)
    assert chosen not in choices("hopper/gemm_dense", replace(small, groups=2))
    assert chosen not in choices("gemm_dense", small)


def test_a_ragged_width_with_groups_is_left_to_tilelang() -> None:
    """A stage of 64 inputs would reach into the next group."""
    assert dense(128, 4096, 4096, groups=2).kernel == "hopper/gemm_dense"
    assert dense(96, 4096, 4096, groups=2).kernel == "gemm_dense"


@pytest.mark.parametrize(
    ("change", "kernel"),
    [
        ({}, "hopper/gemm_experts"),
        ({"x_dtype": "float32"}, "gemm_experts"),
        ({"weight_format": "bfloat16"}, "gemm_experts"),
    ],
)
def test_experts_of_other_formats_are_left_to_tilelang(change: dict[str, Any], kernel: str) -> None:
    assert choose("gemm_experts", replace(EXPERTS, **change), HOPPER, 7).kernel == kernel


def test_attention_of_other_widths_is_left_to_tilelang() -> None:
    assert choose("attention_sparse", ATTENTION, HOPPER).kernel == "hopper/attention_sparse"
    narrow = replace(ATTENTION, head_width=64)
    assert choose("attention_sparse", narrow, HOPPER).kernel == "attention_sparse"


def test_blocks_that_stay_are_as_many_as_the_device_has_room_for() -> None:
    small = Target(is_hopper=True, cores=78)
    assert expert_tuning(7, 5120, 7, small).cores == 78
    choice: Any = dense(4096, 4096, 4096, small)
    assert choice.tuning.cores == 78


def test_a_kernel_without_measured_tunings_has_that_of_its_file() -> None:
    spec = cases_of("transform_rms_norm")[0].spec
    choice = choose("transform_rms_norm", spec, HOPPER)
    assert choice == Choice(
        kernel="transform_rms_norm",
        build=catalogue().load("transform_rms_norm"),
        tuning=catalogue().tune("transform_rms_norm", spec, 0),
    )
    assert isinstance(choice.tuning, KernelTuning)
