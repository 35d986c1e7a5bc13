"""Do the registers that the product of index scores reads hold what the kernel put there?

An interpreter cannot see it: a view of another dtype as operand takes other registers.
"""

import re

import pytest
from deepinfer_core.testing.kernel_cases import cases_of
from deepinfer_core.testing.tiles.lowering import lower
from deepinfer_nvidia.kernels import attention_index_scores as scores

CASE = next(case for case in cases_of("attention_index_scores") if case.name == "model")


@pytest.mark.parametrize(("row_tile", "joined_rows"), [(1, 1), (8, 4)])
def test_the_left_operand_is_a_buffer_of_bf16(row_tile: int, joined_rows: int) -> None:
    """64 keys by 128 channels over 128 threads: 64 numbers each."""
    tuning = scores.Tuning(row_tile=row_tile, joined_rows=joined_rows)
    function = scores.build(CASE.spec, tuning)
    source = lower(function, "sm_90a", pass_configs=dict(tuning.pass_configs)).source
    products = re.findall(r"tl::wgmma_rs<.*?>\(reinterpret_cast<const uint32_t\*>\((\w+)", source)
    assert products
    for operand in products:
        assert re.search(rf"\bbfloat16_t {operand}\[64\];", source)
