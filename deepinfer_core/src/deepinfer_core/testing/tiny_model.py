"""How does a test get a small model that runs on the reference components?"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.builder import build_model
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.numeric import QuantTensor
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference import all_to_all, attention, device, gemm, transform
from deepinfer_core.testing.checkpoints import write_known_checkpoint
from deepinfer_core.testing.tiny import golden_weights, tiny_test_config
from deepinfer_core.weights.checkpoint import open_checkpoint

__all__ = ["PlainWeights", "reference_parts", "stored_tiny_model", "tiny_model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainWeights:
    """A ``TensorSource`` whose tensors lie in memory, without scales.

    Attributes:
        config: the model they belong to.
        tensors: by name; experts are plain [out, in] matrices.
    """

    config: ModelConfig
    tensors: Mapping[str, torch.Tensor]

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor of that name."""
        return self.tensors[name]

    def quant(self, name: str) -> QuantTensor:
        """The tensor of that name in its plain format."""
        return _plain(self.tensors[name])

    def table(self, name: str) -> QuantTensor:
        """The same as ``quant``."""
        return self.quant(name)

    def experts(self, prefix: str) -> tuple[QuantTensor, QuantTensor]:
        """Gate over up projections, and down projections, of all experts below the prefix."""
        count = 0
        while f"{prefix}.{count}.w1.weight" in self.tensors:
            count += 1
        gate, down, up = (
            torch.stack([self.tensors[f"{prefix}.{e}.{part}.weight"] for e in range(count)])
            for part in ("w1", "w2", "w3")
        )
        return _plain(torch.cat((gate, up), dim=1)), _plain(down)


def reference_parts(numerics: Numerics) -> ModelParts:
    """The reference components on the CPU."""
    context = BuildContext(device="cpu", needs=ModelNeeds(compute=numerics.compute))
    attending = attention.build(None, context)
    multiplying = gemm.build(None, context)
    return ModelParts(
        device=device.build_cpu(None, context),
        prefill=attending,
        decode=attending,
        indexer=attending,
        codec=attending,
        dense=multiplying,
        grouped=multiplying,
        transform=transform.build(None, context),
        all_to_all=all_to_all.build(None, context),
        numerics=numerics,
    )


def tiny_model(
    numerics: Numerics,
    *,
    config: ModelConfig | None = None,
    weights: Mapping[str, torch.Tensor] | None = None,
    parts: ModelParts | None = None,
) -> TextModel:
    """The small model with its golden weights.

    Args:
        numerics: roundings.
        config: another config of the same shapes.
        weights: instead of the golden ones.
        parts: components; None takes those of the reference.
    """
    config = config or tiny_test_config()
    source = PlainWeights(
        config=config, tensors=golden_weights(config) if weights is None else weights
    )
    return build_model(
        source, parts or reference_parts(numerics), compressed_ids=_compressed_ids(config)
    )


def stored_tiny_model(folder: Path, config: ModelConfig, parts: ModelParts) -> TextModel:
    """The small model read from a checkpoint, whose formats backends have kernels for.

    Args:
        folder: new, or empty; the checkpoint is written there.
        config: ``tiny_test_config()``, or another.
        parts: components.
    """
    write_known_checkpoint(folder, config, golden_weights(config))
    return build_model(open_checkpoint(folder), parts, compressed_ids=_compressed_ids(config))


def _compressed_ids(config: ModelConfig) -> torch.Tensor:
    text = config.text_config
    return torch.arange(text.vocab_size) % text.engram_compressed_vocab_size


def _plain(tensor: torch.Tensor) -> QuantTensor:
    return QuantTensor(data=tensor, scale=None, format=str(tensor.dtype).removeprefix("torch."))
