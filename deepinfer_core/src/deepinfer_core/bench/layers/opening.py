"""How do a configuration and the chosen components become a runner over random weights?

By the code that serves: the model's builder, its caches, the runner. Only the weights come from
elsewhere, and blocks are filled with copies of a real prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from deepinfer_core.bench.layers.weights import DrawnWeights
from deepinfer_core.bench.layers.work import Storage
from deepinfer_core.cache.row_bytes import planned_row_bytes
from deepinfer_core.engine.page_sizes import BLOCK_TOKENS
from deepinfer_core.engine.runner import ModelRunner
from deepinfer_core.interfaces.device import InlineStream
from deepinfer_core.model.builder import build_model
from deepinfer_core.model.cache_needs import cache_formats
from deepinfer_core.model.caches import allocate_caches
from deepinfer_core.model.operators import torch_dtype
from deepinfer_core.numeric import quantise

if TYPE_CHECKING:
    from collections.abc import Callable

    from deepinfer_core.interfaces.sampler import Sampler
    from deepinfer_core.model.config import ModelConfig
    from deepinfer_core.model.parts import ModelParts

__all__ = ["open_runner", "storage_of"]

_SAMPLE_SIDE = 512
"""Of a weight that shows how many bytes a value takes: whole tiles of every backend."""


def open_runner(
    config: ModelConfig,
    parts: ModelParts,
    sampler: Sampler,
    *,
    num_blocks: int,
    num_slots: int,
    max_backtracking: int,
    tell: Callable[[str], None] | None = None,
) -> ModelRunner:
    """Draw weights, build the model, allocate its caches.

    Args:
        config: without drafter.
        parts: components and numerics.
        sampler: draws tokens.
        num_blocks: blocks, the dummy included.
        num_slots: state slots, the dummy included.
        max_backtracking: most rows of a sequence in a decode step.
        tell: called with the name of each finished part.

    Raises:
        NotSupported: a component lacks a format or width.
        DeviceError: there is not enough memory for the caches.
    """
    text, device = config.text_config, parts.device
    weights = DrawnWeights(config, device.torch_device)
    # Ids that fold to the compressed vocabulary in turn.
    compressed = text.engram_compressed_vocab_size or text.vocab_size
    ids_V = torch.arange(text.vocab_size) % compressed
    with torch.inference_mode():
        model = build_model(weights, parts, compressed_ids=ids_V, progress=tell)
    caches = allocate_caches(
        config,
        parts.numerics,
        parts.codec,
        device,
        num_blocks=num_blocks,
        num_slots=num_slots,
        max_backtracking=max_backtracking,
        block_tokens=BLOCK_TOKENS,
    )
    has_stream = device.torch_device.type != "cpu"
    device.synchronise()
    stream = device.stream() if has_stream else InlineStream()
    return ModelRunner(model, caches, sampler, stream, vocabulary=text.vocab_size)


def storage_of(config: ModelConfig, parts: ModelParts) -> Storage:
    """Ask the components how many bytes they keep, by handing them small weights."""
    numerics, place = parts.numerics, parts.device.torch_device
    values_NK = torch.ones((_SAMPLE_SIDE, _SAMPLE_SIDE), device=place)
    count = values_NK.numel()
    quantised = config.quantization_config is not None
    dense = quantise(values_NK, "fp8_32x32" if quantised else "bfloat16")
    plain = quantise(values_NK, "bfloat16")
    expert = quantise(values_NK[None], "mxfp4" if quantised else "bfloat16")
    formats = cache_formats(config, numerics)
    text = config.text_config
    return Storage(
        dense=parts.dense.prepare(dense).memory_bytes / count,
        expert=parts.grouped.prepare_experts(expert).memory_bytes / count,
        plain=parts.dense.prepare(plain).memory_bytes / count,
        activation=torch_dtype(numerics.compute).itemsize,
        window_row=planned_row_bytes(formats.window, text.head_dim),
        entry_row=planned_row_bytes(formats.entry, text.head_dim),
        index_row=planned_row_bytes(formats.index, text.index_head_dim),
    )
