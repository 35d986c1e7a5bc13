"""Are the machine's rates measured, for buffers of any size?"""

import pytest
from deepinfer_core.bench.machine_rates import machine_rates
from deepinfer_core.reference.device import CpuDevice


@pytest.mark.parametrize("buffer_bytes", [0, 1, 1 << 16, (1 << 20) + 4])
def test_rates_are_positive_for_buffers_of_any_size(buffer_bytes: int) -> None:
    found = machine_rates(CpuDevice(), buffer_bytes)
    assert found.read_bytes_per_s > 0
    assert found.flops_per_s > 0
    assert found.matrix_dtype in ("float32", "bfloat16")
