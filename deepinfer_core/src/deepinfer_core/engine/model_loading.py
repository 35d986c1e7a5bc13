"""How does a checkpoint become a model on the chosen components?

Torch and the components are imported inside: whoever is refused before does without them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deepinfer_core.config.settings import Settings
from deepinfer_core.engine.tokenizer import TOKENIZER_FILE
from deepinfer_core.errors import WeightsError
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.plugin import Resolved, load
from deepinfer_core.telemetry.progress import Phase, ProgressStream
from deepinfer_core.weights.progress import LoadProgress, ProgressListener

if TYPE_CHECKING:
    import torch

    from deepinfer_core.model.backbone import TextModel
    from deepinfer_core.model.parts import ModelParts
    from deepinfer_core.weights.checkpoint import Checkpoint

__all__ = ["model_parts", "read_model"]


def model_parts(resolved: Resolved, settings: Settings) -> ModelParts:
    """The components that the model calls, built on first use."""
    from deepinfer_core.model.parts import ModelParts

    return ModelParts(
        device=load(resolved, "device"),
        prefill=load(resolved, "attention", "prefill"),
        decode=load(resolved, "attention", "decode"),
        indexer=load(resolved, "attention", "indexer"),
        codec=load(resolved, "attention", "cache_codec"),
        dense=load(resolved, "gemm", "dense"),
        grouped=load(resolved, "gemm", "grouped"),
        transform=load(resolved, "transform"),
        all_to_all=load(resolved, "all_to_all"),
        numerics=settings.model.numerics.numerics(),
    )


def read_model(
    folder: Path, checkpoint: Checkpoint, parts: ModelParts, stream: ProgressStream
) -> TextModel:
    """Read the weights.

    Args:
        folder: of the checkpoint, with its tokenizer.
        checkpoint: opened; remembers whom it tells how far it is.
        parts: components that the model calls.
        stream: told about the phase ``weights.load``.

    Raises:
        WeightsError: a tensor, or the tokenizer that Engram layers need, is missing.
        NotSupported: a component cannot run a width or format of the model.
    """
    from deepinfer_core.model.builder import build_model

    ids_V = _compressed_ids(folder, checkpoint.config)
    with stream.phase("weights.load", total=checkpoint.nbytes, unit="bytes") as phase:
        checkpoint.progress = _advance(phase)
        return build_model(checkpoint, parts, compressed_ids=ids_V)


def _compressed_ids(folder: Path, config: ModelConfig) -> torch.Tensor | None:
    from deepinfer_core.model.engram_vocabulary import load_compressed_vocabulary

    text = config.text_config
    if not text.engram_layer_ids:
        return None
    if not (folder / TOKENIZER_FILE).is_file():
        raise WeightsError(
            f"{folder} holds no {TOKENIZER_FILE}, which the Engram memory of this model needs",
            hint="copy it from where the checkpoint came from",
        )
    expected = text.engram_compressed_vocab_size
    return load_compressed_vocabulary(folder / TOKENIZER_FILE, expected_size=expected).id_V


def _advance(phase: Phase) -> ProgressListener:
    def advance(event: LoadProgress) -> None:
        if event.phase == "tensors":
            phase.advance_to(event.bytes_done, event.name)

    return advance
