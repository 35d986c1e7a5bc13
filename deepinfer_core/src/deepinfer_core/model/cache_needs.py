"""What does a model of a given config keep between steps, and in which formats?

Imports no torch, so that memory can be planned before anything is loaded.
"""

from deepinfer_core.cache.needs import CacheFormats, CacheNeeds
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.config import ModelConfig

__all__ = ["cache_formats", "cache_needs"]


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


def cache_formats(config: ModelConfig, numerics: Numerics) -> CacheFormats:
    """The formats of all rows; a checkpoint may ask for entries as wide as window keys."""
    is_narrow = config.text_config.use_fp4_sparse_kv
    return CacheFormats(
        window=numerics.window_format,
        entry=numerics.entry_format if is_narrow else numerics.window_format,
        index=numerics.index_format,
        raw=numerics.accumulate,
    )
