"""Random kernels: the interpreter and plain numpy agree bit for bit."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from deepinfer_core.testing.tiles import Program, fuzz_device
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


def test_the_program_says_that_it_needs_a_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert fuzz_device.main(["--count", "1"]) == 2
    assert "no GPU" in capsys.readouterr().err


def test_the_program_prints_what_disagrees_and_writes_the_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "ACME")
    found = {5: [], 6: ["1 rows, out_TD: 3 of 64 differ on the device"], 7: []}
    monkeypatch.setattr(fuzz_device, "fuzz", lambda seeds, workers: iter(found.items()))
    out = tmp_path / "fuzz.json"
    assert fuzz_device.main(["--first", "5", "--count", "3", "--out", str(out)]) == 1
    shown = capsys.readouterr().out
    assert "seed 6: 1 rows, out_TD: 3 of 64 differ" in shown
    assert "2 of 3 kernels agree" in shown
    [figure] = json.loads(out.read_text())
    assert (figure["value"], figure["of"], figure["seeds"]) == (2, 3, [5, 7])
    assert (figure["hardware"], list(figure["wrong"])) == ("ACME", ["6"])
