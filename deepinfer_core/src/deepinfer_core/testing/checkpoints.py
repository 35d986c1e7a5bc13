"""How does a test get a folder that looks like a real checkpoint, with weights it knows?"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from deepinfer_core.errors import WeightsError
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.numeric import quantise
from deepinfer_core.weights.manifest import StoredTensor, WeightSpec, manifest_of
from deepinfer_core.weights.writing import prepare_folder, write_checkpoint

__all__ = ["write_known_checkpoint"]


def write_known_checkpoint(
    folder: Path,
    config: ModelConfig,
    weights: Mapping[str, torch.Tensor],
    *,
    plain: bool = False,
    shards: int = 1,
) -> None:
    """Write given weights, quantised as the configuration declares, or all in fp32.

    Args:
        folder: new, or empty.
        config: decides names, shapes and formats.
        weights: float values by name, one for each weight of the manifest.
        plain: store every weight as F32 without scales, whatever the configuration declares.
        shards: number of files.

    Raises:
        ConfigError: the folder cannot be used.
        WeightsError: a weight is missing, unknown or of another shape.
    """
    specs = list(manifest_of(config).weights.values())
    for spec in specs:
        found = weights[spec.name].shape if spec.name in weights else None
        if found != spec.shape:
            raise WeightsError(f"asked for {spec.name} of shape {spec.shape}, found {found}")
    if len(weights) > len(specs):
        surplus = min(set(weights) - {spec.name for spec in specs})
        raise WeightsError(f"asked for the weights of the manifest, found {surplus} as well")
    if plain:
        specs = [replace(spec, format="float32") for spec in specs]
    prepare_folder(folder, sum(item.nbytes for spec in specs for item in spec.stored()))

    def pieces(spec: WeightSpec, stored: StoredTensor) -> Iterator[NDArray[np.uint8]]:
        tensor = quantise(weights[spec.name], spec.format)
        part = tensor.data if stored.name == spec.name else tensor.scale
        if part is not None and part.numel():
            yield part.contiguous().view(-1).view(torch.uint8).numpy()

    write_checkpoint(folder, config, specs, pieces, shards=shards)
