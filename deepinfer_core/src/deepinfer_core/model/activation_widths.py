"""Can the inputs of all quantised products be rounded in whole groups of channels?

Rounded activations share one scale among 32 channels, so each such input must be a whole number of
groups wide. Answered from the config alone, without torch: before any weight is read.
"""

from __future__ import annotations

from collections.abc import Iterator

from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.config import ModelConfig, TextConfig

__all__ = ["ACTIVATION_GROUP", "check_activation_widths"]

ACTIVATION_GROUP = 32
"""Channels that share a scale when activations are rounded to ``mxfp8``."""


def check_activation_widths(config: ModelConfig, numerics: Numerics) -> None:
    """Refuse widths that the rounding of activations would have to cut inside a group.

    Raises:
        NotSupported: naming the first key, its value and the setting that avoids the rounding.
    """
    if not numerics.activation_quantisation:
        return
    for key, width in _rounded_inputs(config.text_config):
        if width % ACTIVATION_GROUP:
            raise NotSupported(
                f"asked to round activations in groups of {ACTIVATION_GROUP} channels, found "
                f"{key} = {width}",
                hint="set model.numerics.activation_quantisation=false for this checkpoint",
            )


def _rounded_inputs(text: TextConfig) -> Iterator[tuple[str, int]]:
    """Width of the input of each kind of product with an FP8 or FP4 weight.

    The Engram projection is not among them: its rows carry scales of their own already.
    """
    yield "text_config.hidden_size", text.hidden_size
    yield "text_config.q_lora_rank", text.q_lora_rank
    group_heads = text.num_attention_heads // text.o_groups
    yield "text_config.num_attention_heads / o_groups * head_dim", group_heads * text.head_dim
    yield "text_config.o_groups * o_lora_rank", text.o_groups * text.o_lora_rank
    yield "text_config.moe_intermediate_size", text.moe_intermediate_size
