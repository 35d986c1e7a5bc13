"""Which tiles of dense products are proposed for a measurement on Hopper?"""

from typing import Any

import pytest
from deepinfer_core.interfaces.operators.gemm import GemmDenseSpec
from deepinfer_core.testing.kernel_cases.tuned import tuned_loads
from deepinfer_nvidia.kernels.hopper.dense_candidates import dense_candidates
from deepinfer_nvidia.kernels.hopper.ring import SHARED_BYTES

TUNED_SPECS = [loads[0].case.spec for loads in tuned_loads("gemm_dense")]


def proposed(in_width: int, out_width: int) -> list[Any]:
    spec = GemmDenseSpec(in_width=in_width, out_width=out_width, out_dtype="bfloat16")
    return list(dense_candidates(spec))


def test_nothing_is_proposed_twice() -> None:
    for spec in TUNED_SPECS:
        assert len(set(dense_candidates(spec))) == len(dense_candidates(spec))


def test_halves_of_k_are_proposed_for_few_channels_and_long_sums_alone() -> None:
    divided = {
        (spec.in_width, spec.out_width)
        for spec in TUNED_SPECS
        if any(tuning.parts == 2 for tuning in dense_candidates(spec))
    }
    assert divided == {(2304, 5120), (4096, 4096), (5120, 4608), (8192, 5120)}


@pytest.mark.parametrize(("out_width", "parts"), [(384, {4, 8}), (512, {4, 8}), (1280, {4})])
def test_quarters_of_k_are_proposed_where_eighths_are_usual(
    out_width: int, parts: set[int]
) -> None:
    assert {tuning.parts for tuning in proposed(5120, out_width)} == parts


@pytest.mark.parametrize("blocks", [2, 3, 4])
def test_tiles_are_proposed_of_which_several_share_a_core(blocks: int) -> None:
    a_core = SHARED_BYTES + 1024
    assert blocks in [a_core // (one.ring_bytes + 1024) for one in proposed(5120, 384)]


def test_channels_of_a_proposed_tile_come_in_three_copies_at_most() -> None:
    for out_width in (4096, 4608, 5120):
        for tuning in proposed(4096, out_width):
            assert tuning.channels <= 3 * tuning.channel_box(out_width)
    assert 72 in {tuning.channels for tuning in proposed(4096, 4608)}
    assert 72 not in {tuning.channels for tuning in proposed(4096, 4096)}
