"""Which caches does a model of a given config need, and how are they allocated?"""

from deepinfer_core.cache.layout import CacheFormats, CacheLayout, CacheNeeds, cache_layout
from deepinfer_core.cache.storage import Caches
from deepinfer_core.interfaces.attention import CacheCodec
from deepinfer_core.interfaces.device import Device
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.config import ModelConfig

__all__ = ["allocate_caches", "cache_needs", "model_cache_layout"]


def cache_needs(config: ModelConfig) -> CacheNeeds:
    """Read off the config what is kept between steps."""
    text = config.text_config
    return CacheNeeds(
        window_tokens=text.sliding_window,
        head_width=text.head_dim,
        index_width=text.index_head_dim,
        encoder_layers=config.boundary_layer,
        layers=text.num_hidden_layers,
        draft_layers=text.num_nextn_predict_layers,
        entry_ratios={layer.index: layer.ratio for layer in config.layers if layer.has_compressor},
        index_owners=text.index_key_layers,
    )


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
    # A checkpoint may ask for wider entries; they then have the format of window keys.
    is_narrow = config.text_config.use_fp4_sparse_kv
    formats = CacheFormats(
        window=numerics.window_format,
        entry=numerics.entry_format if is_narrow else numerics.window_format,
        index=numerics.index_format,
        raw=numerics.accumulate,
    )
    return cache_layout(
        cache_needs(config),
        formats,
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
