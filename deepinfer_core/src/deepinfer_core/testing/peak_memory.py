"""How much memory does loading a checkpoint take, beside the model itself?

Run as a process of its own, ``python -m deepinfer_core.testing.peak_memory FOLDER``: it imports
what loading needs, takes every weight as the model builder does (experts in stacks, Engram tables
mapped), keeps all of it, and writes one JSON object with ``model_bytes``, ``mapped_bytes`` (the
tables' part of them), ``baseline_bytes`` (resident after the imports), ``peak_bytes`` (highest
resident size of the process) and ``elapsed_s``.
"""

import json
import sys
import time
from pathlib import Path

import torch

from deepinfer_core.numeric import QuantTensor
from deepinfer_core.weights.checkpoint import Checkpoint, open_checkpoint

__all__ = ["load_everything", "resident_bytes"]


def resident_bytes(field: str) -> int:
    """Read a size of this process from the kernel.

    Args:
        field: ``VmRSS`` for now, ``VmHWM`` for the highest so far. The figure that ``getrusage``
            gives is no substitute: it starts with the size of the parent process.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"asked for {field} in /proc/self/status, found no such line")


def load_everything(checkpoint: Checkpoint) -> tuple[list[QuantTensor], list[QuantTensor]]:
    """Take every weight once: experts stacked, tables mapped, everything else as it is stored.

    Returns:
        Weights in memory, and mapped tables.
    """
    held: list[QuantTensor] = []
    mapped: list[QuantTensor] = []
    for layer in checkpoint.config.layers:
        held += checkpoint.experts(f"{layer.prefix}ffn.experts")
    for name, weight in checkpoint.manifest.weights.items():
        if name.endswith("engram.embed.weight"):
            mapped.append(checkpoint.table(name))
        elif weight.group != "experts":
            held.append(checkpoint.quant(name))
    return held, mapped


def main(folder: str) -> None:
    """Load a checkpoint and report."""
    torch.set_num_threads(1)
    baseline = resident_bytes("VmRSS")
    began = time.perf_counter()
    checkpoint = open_checkpoint(folder)
    held, mapped = load_everything(checkpoint)
    report = {
        "model_bytes": sum(tensor.nbytes for tensor in [*held, *mapped]),
        "mapped_bytes": sum(tensor.nbytes for tensor in mapped),
        "baseline_bytes": baseline,
        "peak_bytes": resident_bytes("VmHWM"),
        "elapsed_s": time.perf_counter() - began,
    }
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
