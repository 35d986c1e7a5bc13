"""Where do the weights of a model come from that nobody trained?

They are drawn where the model runs, when the builder asks for them, in the formats of a checkpoint:
hundreds of gigabytes take seconds, and the host holds none of them but the Engram tables. The
distributions are those of ``weights.random_values``, the bytes are not: each device has its own
generator.

Shapes: E experts, I expert width, D hidden width.
"""

from __future__ import annotations

from math import floor, log2, prod

import torch

from deepinfer_core.model.config import ModelConfig
from deepinfer_core.numeric import QuantTensor, number_format
from deepinfer_core.weights.manifest import WeightSpec, manifest_of
from deepinfer_core.weights.random_values import code_tables, moments, table_spread

__all__ = ["DrawnWeights"]

_PIECE = 1 << 26
"""Codes drawn at a time: their numbers take four bytes each until they are looked up."""
_SCALE_BIAS = 127


class DrawnWeights:
    """Random weights of a configuration; a ``TensorSource``.

    Args:
        config: decides names, shapes and formats.
        device: where they are drawn.
        seed: of all weights.
    """

    def __init__(self, config: ModelConfig, device: torch.device, *, seed: int = 0) -> None:
        self._config = config
        self._weights = manifest_of(config).weights
        self._device = device
        self._generator = torch.Generator(device).manual_seed(seed)

    @property
    def config(self) -> ModelConfig:
        """The configuration."""
        return self._config

    def tensor(self, name: str) -> torch.Tensor:
        """A weight without scales."""
        return self.quant(name).data

    def quant(self, name: str) -> QuantTensor:
        """A weight with its scales, if it has some."""
        spec = self._weights[name]
        return self._drawn(spec, spec.shape)

    def table(self, name: str) -> QuantTensor:
        """A weight of which a step looks up a few rows, in host memory."""
        drawn = self.quant(name)
        return QuantTensor(
            data=drawn.data.cpu(),
            scale=None if drawn.scale is None else drawn.scale.cpu(),
            format=drawn.format,
        )

    def experts(self, prefix: str) -> tuple[QuantTensor, QuantTensor]:
        """The routed experts of a layer: [E, 2 * I, D] and [E, D, I]."""
        gate = self._weights[f"{prefix}.0.w1.weight"]
        down = self._weights[f"{prefix}.0.w2.weight"]
        count = 0
        while f"{prefix}.{count}.w1.weight" in self._weights:
            count += 1
        rows, columns = gate.shape
        return (
            self._drawn(gate, (count, 2 * rows, columns)),
            self._drawn(down, (count, *down.shape)),
        )

    def _drawn(self, spec: WeightSpec, shape: tuple[int, ...]) -> QuantTensor:
        mean, spread = moments(spec)
        form, generator = number_format(spec.format), self._generator
        if form.is_plain:
            values = torch.empty(shape, dtype=form.storage, device=self._device)
            values.normal_(mean, spread, generator=generator)
            return QuantTensor(data=values, scale=None, format=spec.format)
        *leading, rows, columns = shape
        table = torch.from_numpy(code_tables(spec.format)).to(self._device)
        packed = (*leading, rows, columns // form.values_per_element)
        data = _codes(table, prod(packed), generator).view(packed)
        groups = (*leading, -(-rows // form.group_rows), -(-columns // form.group_columns))
        return QuantTensor(
            data=data.view(form.storage),
            scale=_scales(groups, spread / table_spread(spec.format), generator),
            format=spec.format,
        )


def _codes(table: torch.Tensor, count: int, generator: torch.Generator) -> torch.Tensor:
    """Bytes of a table, each as likely."""
    codes = torch.empty(count, dtype=torch.uint8, device=table.device)
    for start in range(0, count, _PIECE):
        piece = codes[start : start + _PIECE]
        number = torch.empty(piece.shape, dtype=torch.int32, device=table.device)
        number.random_(0, len(table), generator=generator)
        torch.index_select(table, 0, number, out=piece)
    return codes


def _scales(shape: tuple[int, ...], factor: float, generator: torch.Generator) -> torch.Tensor:
    """Bytes of powers of two whose mean square is the square of ``factor``."""
    exponent = floor(log2(factor))
    share = (factor**2 / 4.0**exponent - 1) / 3  # of groups that take the next power
    uniform = torch.empty(shape, device=generator.device).uniform_(generator=generator)
    return (uniform < share).to(torch.uint8) + (exponent + _SCALE_BIAS)
