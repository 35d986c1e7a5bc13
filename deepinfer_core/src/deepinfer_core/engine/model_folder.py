"""What does a checkpoint's folder say about the model, before any tensor is looked at?

Imports no torch: ``deepinfer check`` answers from here.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from deepinfer_core.config.settings import Settings
from deepinfer_core.engine.page_sizes import BLOCK_TOKENS
from deepinfer_core.errors import ConfigError, WeightsError
from deepinfer_core.model.activation_widths import check_activation_widths
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.plugin import ModelNeeds

__all__ = ["model_needs", "read_config"]


def read_config(folder: Path, settings: Settings) -> ModelConfig:
    """The checkpoint's config, with what the settings replace in it.

    Raises:
        WeightsError: there is no such folder, or it holds no checkpoint.
        ConfigError: the config cannot be used, or a setting does not fit it.
        NotSupported: activations cannot be rounded at one of its widths.
    """
    if not folder.is_dir():
        raise WeightsError(
            f"the model folder {folder} does not exist"
            if not folder.exists()
            else f"{folder} is not a folder",
            hint="set model.path, or --model, to the folder of a checkpoint",
        )
    if not (folder / "config.json").is_file():
        raise WeightsError(
            f"{folder} holds no config.json, so it is not a checkpoint",
            hint="set model.path, or --model, to the folder of a checkpoint",
        )
    config = ModelConfig.from_file(folder / "config.json")
    check_activation_widths(config, settings.model.numerics.numerics())
    _check_banned(config, settings.engine.decode_token_blacklist)
    temperatures = settings.drafter.confidence_temperatures
    return config if temperatures is None else _with_temperatures(config, temperatures)


def _with_temperatures(config: ModelConfig, temperatures: tuple[float, ...]) -> ModelConfig:
    drafts = config.text_config.dspark_block_size
    if len(temperatures) not in (1, drafts):
        raise ConfigError(
            f"drafter.confidence_temperatures has {len(temperatures)} values, the checkpoint "
            f"drafts {drafts} tokens",
            hint=f"give one value or {drafts}",
        )
    value = temperatures if len(temperatures) > 1 else temperatures[0]
    text = replace(config.text_config, dspark_confidence_temperature=value)
    return replace(config, text_config=text)


def _check_banned(config: ModelConfig, banned: tuple[int, ...]) -> None:
    """Refuse to ban tokens that the model does not have; ``banned`` is sorted."""
    vocabulary = config.text_config.vocab_size
    if banned and banned[-1] >= vocabulary:
        raise ConfigError(
            f"engine.decode_token_blacklist names token {banned[-1]}",
            hint=f"token ids of this model are 0 to {vocabulary - 1}",
        )


def model_needs(config: ModelConfig, settings: Settings) -> ModelNeeds:
    """What probes may know about the model."""
    text, numerics = config.text_config, settings.model.numerics.numerics()
    formats = (numerics.window_format, numerics.entry_format, numerics.index_format)
    return ModelNeeds(
        hidden_width=text.hidden_size,
        head_count=text.num_attention_heads,
        head_width=text.head_dim,
        index_head_count=text.index_n_heads,
        index_width=text.index_head_dim,
        window_tokens=text.sliding_window,
        block_tokens=BLOCK_TOKENS,
        vocabulary=text.vocab_size,
        expert_count=text.n_routed_experts,
        max_model_tokens=settings.engine.max_model_len or text.max_position_embeddings,
        compute=numerics.compute,
        cache_formats=tuple(dict.fromkeys(formats)),
    )
