"""How do trained weights travel in files of less than 16 MiB?

Stacked names, bf16 where the checkpoint stores at most bf16, in two files of about equal size.
"""

from __future__ import annotations

from pathlib import Path

import torch

__all__ = ["is_wide", "load_halves", "save_halves"]

_COUNT = 2


def is_wide(name: str) -> bool:
    """Whether the checkpoint stores this tensor in fp32."""
    return "gate_bias" in name or "hc_" in name or name.endswith(("sink", "temperature"))


def save_halves(folder: Path, stacked: dict[str, torch.Tensor]) -> None:
    """Write ``weights0.pt`` and ``weights1.pt``."""
    halves: list[dict[str, torch.Tensor]] = [{} for _ in range(_COUNT)]
    filled = [0] * _COUNT
    for name, value in sorted(stacked.items(), key=lambda item: -item[1].numel()):
        half = filled.index(min(filled))
        stored = value.detach().cpu().to(torch.float32 if is_wide(name) else torch.bfloat16)
        halves[half][name] = stored
        filled[half] += stored.numel() * stored.element_size()
    for i, half_tensors in enumerate(halves):
        torch.save(half_tensors, folder / f"weights{i}.pt")


def load_halves(folder: Path) -> dict[str, torch.Tensor]:
    """Inverse of `save_halves`, fp32."""
    found: dict[str, torch.Tensor] = {}
    for i in range(_COUNT):
        found |= torch.load(folder / f"weights{i}.pt", map_location="cpu", weights_only=True)
    return {k: v.float() for k, v in found.items()}
