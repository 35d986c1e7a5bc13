"""Program: do the interpreter, numpy and compiled kernels agree on kernels that nobody thought of?

``python -m deepinfer_core.testing.tiles.fuzz_device --first 1000 --count 64`` compiles 64 random
kernels in several processes, runs each on the GPU for several numbers of rows, and prints those
that disagree in any bit. Exit code 1 if one does, or if the compiler refuses one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from deepinfer_core.bench.stamp import commit_of
from deepinfer_core.testing.tiles.fuzz import TILE, random_kernel
from deepinfer_core.testing.tiles.lowering import ARCHITECTURES
from deepinfer_core.testing.tiles.program import Program

__all__ = ["compile_kernel", "device_arch", "disagreements", "fuzz", "main"]

_COMMAND = "python -m deepinfer_core.testing.tiles.fuzz_device"
_ROWS = (1, TILE - 1, TILE, 300)


def device_arch() -> str:
    """The architecture of the current GPU, as ``lower`` names it."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}a"


def compile_kernel(seed: int, folder: str, arch: str) -> str:
    """Compile a random kernel into TileLang's own cache, where another process finds it.

    Args:
        seed: of the kernel.
        folder: for its text.
        arch: one of ``ARCHITECTURES``.

    Returns:
        What the compiler says against it; empty: nothing.
    """
    try:
        _compiled(seed, Path(folder), arch)
    except Exception as error:  # noqa: BLE001 - whatever a compiler raises is the answer
        return f"not compiled: {type(error).__name__}: {str(error)[-300:]}"
    return ""


def disagreements(seed: int, folder: Path, arch: str) -> list[str]:
    """Run a random kernel on the GPU, in the interpreter and in numpy; empty: all bits are equal.

    Args:
        seed: of the kernel.
        folder: for its text.
        arch: of the GPU.
    """
    import torch

    kernel = random_kernel(seed)
    func, compiled = _compiled(seed, folder, arch)
    program = Program(func)
    names = [func.buffer_map[handle].name for handle in func.params]
    wrong = []
    for rows in _ROWS:
        given = kernel.arguments(rows)
        expected = kernel.expect(given)
        placed = {name: torch.from_numpy(values.copy()).cuda() for name, values in given.items()}
        compiled(*[placed[name] for name in names])
        torch.cuda.synchronize()
        program.run(given)
        for name, values in expected.items():
            device = placed[name].cpu().numpy()
            place = f"{rows} rows, {name}"
            if not np.array_equal(given[name], values):
                wrong.append(f"{place}: the interpreter differs from numpy")
            if not np.array_equal(device, given[name]):
                off = int((device != given[name]).sum())
                wrong.append(f"{place}: {off} of {device.size} differ on the device")
    return wrong


def _compiled(seed: int, folder: Path, arch: str) -> tuple[Any, Any]:
    import tilelang

    func = random_kernel(seed).build(folder)
    return func, tilelang.compile(func, target=ARCHITECTURES[arch])


def fuzz(seeds: Sequence[int], *, workers: int) -> Iterator[tuple[int, list[str]]]:
    """Judge kernels in the order in which the compiler is done with them.

    Args:
        seeds: of the kernels.
        workers: processes that compile; this one uses the GPU meanwhile.

    Yields:
        A seed, and what is wrong with its kernel.
    """
    arch = device_arch()
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(max_workers=workers, mp_context=context) as pool,
    ):
        waiting = {pool.submit(compile_kernel, seed, folder, arch): seed for seed in seeds}
        for done in as_completed(waiting):
            seed, refusal = waiting[done], done.result()
            yield seed, [refusal] if refusal else disagreements(seed, Path(folder), arch)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz, and print what disagrees.

    Returns:
        Exit code: 0 if everything agrees, 1 if not, 2 without a GPU.
    """
    import torch

    parser = argparse.ArgumentParser(description="Fuzz the tile interpreter against a GPU.")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="of the first kernel")
    parser.add_argument("--count", type=int, default=64, metavar="N", help="kernels")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), metavar="N")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the figure as JSON")
    chosen = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        sys.stderr.write("there is no GPU that torch can use: run this where one is\n")
        return 2
    wrong: dict[int, list[str]] = {}
    seeds = range(chosen.first, chosen.first + chosen.count)
    for seed, complaints in fuzz(seeds, workers=chosen.workers):
        if complaints:
            wrong[seed] = complaints
            sys.stdout.write(f"seed {seed}: {' | '.join(complaints[:3])}\n")
    sys.stdout.write(f"{len(seeds) - len(wrong)} of {len(seeds)} kernels agree in every bit\n")
    if chosen.out is not None:
        chosen.out.write_text(json.dumps([_figure(chosen, wrong)], indent=1) + "\n")
    return 1 if wrong else 0


def _figure(chosen: argparse.Namespace, wrong: dict[int, list[str]]) -> dict[str, Any]:
    import torch

    return {
        "name": "random kernels that agree with the interpreter and numpy in every bit",
        "value": chosen.count - len(wrong),
        "unit": "kernels",
        "of": chosen.count,
        "seeds": [chosen.first, chosen.first + chosen.count - 1],
        "rows": list(_ROWS),
        "wrong": {str(seed): complaints for seed, complaints in sorted(wrong.items())},
        "hardware": torch.cuda.get_device_name(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit_of(Path(__file__)),
        "command": f"{_COMMAND} --first {chosen.first} --count {chosen.count}",
    }


if __name__ == "__main__":
    sys.exit(main())
