"""How does a checkpoint become a model that runs on the chosen components?"""

from collections.abc import Callable

import torch

from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.model.tensor_source import TensorSource

__all__ = ["build_model"]


def build_model(
    source: TensorSource,
    parts: ModelParts,
    *,
    compressed_ids: torch.Tensor,
    progress: Callable[[str], None] | None = None,
) -> TextModel:
    """Build the text model and its drafter.

    Args:
        source: a checkpoint.
        parts: components and numerics.
        compressed_ids: int64 [vocabulary], the compressed id of each token id.
        progress: called with the name of each finished part.
    """
    raise NotImplementedError
