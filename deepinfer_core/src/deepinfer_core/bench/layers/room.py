"""How many layers and blocks fit on the device?

Worked out before anything is built, from what is free and from how the components keep weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepinfer_core.bench.layers.depth import layer_bytes, pick_layers, shallow_config
from deepinfer_core.bench.layers.loads import Pool
from deepinfer_core.engine.page_sizes import BLOCK_TOKENS
from deepinfer_core.errors import DeviceError
from deepinfer_core.model.caches import model_cache_layout

if TYPE_CHECKING:
    from deepinfer_core.bench.layers.scales import Scale
    from deepinfer_core.bench.layers.work import Storage
    from deepinfer_core.model.config import ModelConfig
    from deepinfer_core.model.parts import ModelParts

__all__ = ["Room", "plan_room"]

_FREE_SHARE = 0.1
"""Of the free memory, for activations and for the experts of a layer while they are prepared."""
_POOL_SHARE = 0.06
"""Of the free memory, what blocks may take: texts that are longer together share some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What is built.

    Attributes:
        layers: their numbers in the whole model.
        config: of these layers alone.
        pool: blocks of all texts.
    """

    layers: tuple[int, ...]
    config: ModelConfig
    pool: Pool


def plan_room(scale: Scale, parts: ModelParts, storage: Storage) -> Room:
    """Decide what is built.

    Args:
        scale: what is measured.
        parts: components and numerics.
        storage: what the components keep.

    Raises:
        ConfigError: more layers are asked for than there are, or fewer than kinds.
        DeviceError: not even one layer of each kind fits.
    """
    config, free = scale.config, parts.device.memory().free_bytes
    layout = model_cache_layout(
        config, parts.numerics, parts.codec, max_backtracking=max(scale.rows)
    )
    longest = -(-scale.longest // BLOCK_TOKENS)
    most = int(_POOL_SHARE * free) // layout.block.stride_bytes
    # One text shares no block with itself.
    blocks = max(min(max(scale.sequences) * longest, most), longest)
    caches = (1 + blocks) * layout.block.stride_bytes
    caches += (1 + max(scale.sequences)) * layout.state.stride_bytes
    layers = pick_layers(config, scale.layers or _fitting(config, storage, free, caches))
    return Room(
        layers=layers,
        config=shallow_config(config, layers, table_rows=scale.table_rows),
        pool=Pool(
            blocks=blocks, block_tokens=BLOCK_TOKENS, vocabulary=config.text_config.vocab_size
        ),
    )


def _fitting(config: ModelConfig, storage: Storage, free: int, caches: int) -> int:
    """Layers beside caches and activations, at most all."""
    layer, outside = layer_bytes(config, storage)
    count = int(((1 - _FREE_SHARE) * free - caches - outside) // layer)
    if count < 1:
        raise DeviceError(
            f"asked for layers of {layer:.0f} bytes beside {caches + outside:.0f} bytes, found"
            f" {free} bytes free",
            hint="free some, or ask for --scale small",
        )
    return min(count, config.text_config.num_hidden_layers)
