"""How does a checkpoint in the published format become stacked training weights again?

The values are those of the quantised checkpoint: enough to teach, to be drafted for, or to start
another run from.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

from . import parameters
from .config import ModelConfig

__all__ = ["decode", "read"]

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def decode(data: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """FP8 with block or row scales, or packed MXFP4, as fp32."""
    factor = torch.exp2(scale.view(torch.uint8).float() - 127)
    if data.dtype == torch.int8:
        code = data.view(torch.uint8).long()
        code = torch.stack((code & 15, code >> 4), dim=-1).flatten(-2)
        table = torch.tensor([*_E2M1, *(-x for x in _E2M1)])
        value = table[code]
    else:
        value = data.float()
    down, across = value.shape[-2] // factor.shape[-2], value.shape[-1] // factor.shape[-1]
    return value * factor.repeat_interleave(down, -2).repeat_interleave(across, -1)


def read(config: ModelConfig, folder: Path) -> dict[str, torch.Tensor]:
    """Stacked fp32 weights of the shards in ``folder``.

    Args:
        config: sizes of the checkpoint.
        folder: its folder. Tensors of the drafter may be missing; they are then zero.

    Raises:
        FileNotFoundError: the folder holds no shard.
    """
    stored: dict[str, torch.Tensor] = {}
    for shard in sorted(folder.glob("*.safetensors")):
        stored |= load_file(shard)
    if not stored:
        raise FileNotFoundError(f"{folder} has no *.safetensors: give a checkpoint's folder")
    stacked = {k: torch.zeros(shape) for k, shape in parameters.shapes(config).items()}
    for name, place in parameters.to_checkpoint(config, stacked).items():
        if name not in stored and name.startswith("mtp."):
            continue
        scale = stored.get(name.removesuffix("weight") + "scale") if "weight" in name else None
        place.copy_(stored[name].float() if scale is None else decode(stored[name], scale))
    return stacked
