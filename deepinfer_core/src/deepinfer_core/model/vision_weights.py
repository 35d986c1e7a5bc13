"""Which tensors make up the vision tower and its aligner, and how are they read?

All of them are plain, without scales, in whatever float dtype the checkpoint has. Their shapes were
checked when the checkpoint was opened.

Source: tensor names and shapes of the DeepSeek-V4.1-Flash checkpoint.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from deepinfer_core.errors import NotSupported
from deepinfer_core.model.config import VisionConfig
from deepinfer_core.model.tensor_source import TensorSource

__all__ = ["VisionBlock", "VisionWeights", "load_vision_weights"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionBlock:
    """One block of the tower; W tower width, I inner width of the MLP.

    Attributes:
        norm1_W: norm before the attention.
        wqkv: queries, keys and values in thirds, [3 W, W].
        wqkv_bias: [3 W].
        wo: [W, W].
        wo_bias: [W].
        norm2_W: norm before the MLP.
        w1: gate, then up, [2 I, W].
        w2: [W, I].
    """

    norm1_W: torch.Tensor
    wqkv: torch.Tensor
    wqkv_bias: torch.Tensor
    wo: torch.Tensor
    wo_bias: torch.Tensor
    norm2_W: torch.Tensor
    w1: torch.Tensor
    w2: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionWeights:
    """Tower, aligner and span markers, all of one dtype on one device.

    Attributes:
        patch_weight_WC: patch embedding.
        patch_bias_W: its bias.
        blocks: in order.
        norm_W: final norm.
        aligner_w1: [D, W * downsample_ratio ** 2].
        aligner_b1: [D].
        aligner_w2: [D, D].
        aligner_b2: [D].
        start_D: row of a span's START.
        newline_D: row of a NEWLINE.
        end_D: row of END.
        config: heads, rotary base and cell size, which no shape tells.
    """

    patch_weight_WC: torch.Tensor
    patch_bias_W: torch.Tensor
    blocks: tuple[VisionBlock, ...]
    norm_W: torch.Tensor
    aligner_w1: torch.Tensor
    aligner_b1: torch.Tensor
    aligner_w2: torch.Tensor
    aligner_b2: torch.Tensor
    start_D: torch.Tensor
    newline_D: torch.Tensor
    end_D: torch.Tensor
    config: VisionConfig


def load_vision_weights(
    source: TensorSource, *, dtype: torch.dtype, device: torch.device
) -> VisionWeights:
    """Read tower, aligner and markers of a checkpoint.

    Args:
        source: the checkpoint.
        dtype: of the weights and of the arithmetic.
        device: where they are put.

    Raises:
        NotSupported: the checkpoint is text-only.
        WeightsError: a tensor is missing.
    """
    config = source.config.vision_config
    if config is None:
        raise NotSupported(
            "asked for the vision tower, found a checkpoint without vision_config",
            hint="images need a checkpoint that has a vision tower",
        )

    def take(name: str) -> torch.Tensor:
        return source.tensor(name).to(device=device, dtype=dtype)

    return VisionWeights(
        patch_weight_WC=take("vision.patch_embed.proj.weight"),
        patch_bias_W=take("vision.patch_embed.proj.bias"),
        blocks=tuple(
            _block(take, f"vision.blocks.{index}.") for index in range(config.num_hidden_layers)
        ),
        norm_W=take("vision.norm.weight"),
        aligner_w1=take("aligner.w1.weight"),
        aligner_b1=take("aligner.w1.bias"),
        aligner_w2=take("aligner.w2.weight"),
        aligner_b2=take("aligner.w2.bias"),
        start_D=take("image_start"),
        newline_D=take("image_newline"),
        end_D=take("image_end"),
        config=config,
    )


def _block(take: Callable[[str], torch.Tensor], prefix: str) -> VisionBlock:
    return VisionBlock(
        norm1_W=take(f"{prefix}norm1.weight"),
        wqkv=take(f"{prefix}attn.wqkv.weight"),
        wqkv_bias=take(f"{prefix}attn.wqkv.bias"),
        wo=take(f"{prefix}attn.wo.weight"),
        wo_bias=take(f"{prefix}attn.wo.bias"),
        norm2_W=take(f"{prefix}norm2.weight"),
        w1=take(f"{prefix}mlp.w1.weight"),
        w2=take(f"{prefix}mlp.w2.weight"),
    )
