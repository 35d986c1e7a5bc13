"""Random kernels: the interpreter and plain numpy agree bit for bit."""

from pathlib import Path

import numpy as np
import pytest
from deepinfer_core.testing.tiles import Program
from deepinfer_core.testing.tiles.fuzz import TILE, random_kernel
from deepinfer_core.testing.tiles.fuzz_steps import STEPS


@pytest.mark.parametrize("seed", range(16))
def test_a_random_kernel_computes_what_its_steps_mean(seed: int, tmp_path: Path) -> None:
    kernel = random_kernel(seed)
    program = Program(kernel.build(tmp_path))
    for rows in (0, 1, TILE - 1, TILE, 2 * TILE + 5):
        arguments = kernel.arguments(rows)
        expected = kernel.expect(arguments)
        program.run(arguments)
        for name, values in expected.items():
            assert np.array_equal(arguments[name], values), (name, rows, kernel.text)


def test_random_kernels_use_every_step_and_do_not_repeat() -> None:
    texts = [random_kernel(seed).text for seed in range(16)]
    assert len(set(texts)) == len(texts)
    assert random_kernel(3).text == texts[3]
    used = {
        step.apply.__qualname__.split(".")[0]
        for seed in range(16)
        for step in random_kernel(seed).steps
    }
    assert len(used) >= len(set(STEPS)) - 1


def test_random_numbers_do_not_all_end_at_a_limit() -> None:
    shares = []
    for seed in range(16):
        kernel = random_kernel(seed)
        out = kernel.expect(kernel.arguments(20))["out_TD"]
        shares.append(float((np.abs(out) < 15).mean()))
    assert np.mean(shares) > 0.4
