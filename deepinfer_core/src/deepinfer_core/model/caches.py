"""Which caches does a model of a given config need, and how are they allocated?"""

from deepinfer_core.cache.layout import CacheLayout, cache_layout
from deepinfer_core.cache.storage import Caches
from deepinfer_core.interfaces.attention import CacheCodec
from deepinfer_core.interfaces.device import Device
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.cache_needs import cache_formats, cache_needs
from deepinfer_core.model.config import ModelConfig

__all__ = ["allocate_caches", "model_cache_layout"]


def model_cache_layout(
    config: ModelConfig,
    numerics: Numerics,
    codec: CacheCodec,
    *,
    max_backtracking: int,
    block_tokens: int = 128,
) -> CacheLayout:
    """Lay out the caches of a model without allocating them, e.g. to see how many blocks fit.

    Args:
        config: the model.
        numerics: fixes the formats of the rows.
        codec: knows the bytes of a row.
        max_backtracking: most rows of a sequence that a step may feed and later take back.
        block_tokens: tokens that a block covers.

    Raises:
        NotSupported: the codec lacks a format or width.
    """
    return cache_layout(
        cache_needs(config),
        cache_formats(config, numerics),
        codec.row_bytes,
        max_backtracking=max_backtracking,
        block_tokens=block_tokens,
    )


def allocate_caches(
    config: ModelConfig,
    numerics: Numerics,
    codec: CacheCodec,
    device: Device,
    *,
    num_blocks: int,
    num_slots: int,
    max_backtracking: int,
    block_tokens: int = 128,
) -> Caches:
    """Allocate zeroed caches; block 0 and state slot 0 are dummies and count.

    Raises:
        NotSupported: the codec lacks a format or width.
        DeviceError: there is not enough memory.
    """
    layout = model_cache_layout(
        config, numerics, codec, max_backtracking=max_backtracking, block_tokens=block_tokens
    )
    return Caches(layout, device, num_blocks=num_blocks, num_slots=num_slots)
