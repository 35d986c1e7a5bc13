"""What stands in for the weights of a checkpoint when only their shapes and formats matter?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from deepinfer_core.model.config import ModelConfig
from deepinfer_core.numeric import QuantTensor
from deepinfer_core.weights.checkpoint import open_checkpoint
from deepinfer_core.weights.manifest import StoredTensor, WeightSpec, manifest_of
from deepinfer_core.weights.reading import STORAGE

__all__ = ["AbsentWeights", "stored_formats"]


def stored_formats(folder: Path) -> dict[str, str]:
    """The format of each weight that a checkpoint's files hold; empty where there are no files.

    Raises:
        WeightsError: files are damaged, or do not fit the config.
    """
    if not any(folder.glob("*.safetensors")):
        return {}
    return {name: weight.format for name, weight in open_checkpoint(folder).found.items()}


class AbsentWeights:
    """A ``TensorSource`` whose tensors have no numbers.

    Args:
        config: the model they belong to.
        formats: of weights that are stored otherwise than the config declares, by name.
    """

    def __init__(self, config: ModelConfig, formats: Mapping[str, str]) -> None:
        self._config = config
        self._formats = formats
        self._specs = manifest_of(config).weights

    @property
    def config(self) -> ModelConfig:
        """The config that comes with the weights."""
        return self._config

    def tensor(self, name: str) -> torch.Tensor:
        """A tensor without scales, as stored."""
        return _empty(self._stored(name)[0])

    def quant(self, name: str) -> QuantTensor:
        """A weight with its scales if it has some."""
        return self._stacked([name])

    def table(self, name: str) -> QuantTensor:
        """The same as ``quant``."""
        return self.quant(name)

    def experts(self, prefix: str) -> tuple[QuantTensor, QuantTensor]:
        """Stacked routed experts below a prefix."""
        first = f"{prefix.removesuffix('.')}.0"
        count = 0
        while f"{first[:-1]}{count}.w1.weight" in self._specs:
            count += 1
        gate, down, up = (f"{first}.w{part}.weight" for part in (1, 2, 3))
        return self._stacked([gate, up], count), self._stacked([down], count)

    def _format(self, spec: WeightSpec) -> str:
        return self._formats.get(spec.name, spec.format)

    def _stored(self, name: str) -> tuple[StoredTensor, ...]:
        spec = self._specs[name]
        return spec.stored(self._format(spec))

    def _stacked(self, names: list[str], count: int = 0) -> QuantTensor:
        """Matrices on top of each other, and so many of these stacks; 0: one without an axis."""
        parts = zip(*(self._stored(name) for name in names), strict=True)
        data, *scale = [_empty(*column, count=count) for column in parts]
        form = self._format(self._specs[names[0]])
        return QuantTensor(data=data, scale=scale[0] if scale else None, format=form)


def _empty(*parts: StoredTensor, count: int = 0) -> torch.Tensor:
    first = parts[0]
    shape = first.shape
    if len(parts) > 1:
        shape = (sum(part.shape[0] for part in parts), *shape[1:])
    leading = (count,) if count else ()
    return torch.empty((*leading, *shape), dtype=STORAGE[first.dtype], device="meta")
