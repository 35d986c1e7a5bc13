"""From where does the model builder take its weights?"""

from typing import Protocol

import torch

from deepinfer_core.model.config import ModelConfig
from deepinfer_core.numeric import QuantTensor

__all__ = ["TensorSource"]


class TensorSource(Protocol):
    """A checkpoint as the builder sees it; names as in the checkpoint, without a prefix."""

    @property
    def config(self) -> ModelConfig:
        """The config that comes with the weights."""

    def tensor(self, name: str) -> torch.Tensor:
        """A tensor without scales, as stored."""

    def quant(self, name: str) -> QuantTensor:
        """A weight with its scales if it has some; ``name`` ends with ``.weight``."""

    def table(self, name: str) -> QuantTensor:
        """A weight of which a step looks up a few rows; on the host, perhaps mapped."""

    def experts(self, prefix: str) -> tuple[QuantTensor, QuantTensor]:
        """Stacked routed experts below ``prefix``, e.g. ``layers.0.ffn.experts``.

        Returns:
            Gate over up projections [E, 2 * I, D], and down projections [E, D, I].
        """
