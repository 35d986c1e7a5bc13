"""How does an image become rows of the language model's input?

Patches go through a tower of pre-norm blocks in which every patch sees every other one, then an
aligner turns each cell of 3 x 3 patches into one row as wide as the language model. Three learned
rows mark the start, the end of each row of cells and the end of the image.

GAP: no component interface exists for this part, so no backend can replace it: it runs in plain
torch on the device that its weights are on. Nothing drives it yet: the engine accepts no images.

Arithmetic is in the weights' dtype; norms, rotary positions and the attention's softmax use fp32
(fp64 when the weights are fp64).

Shapes: N patches, C values a patch, W tower width, H heads, P rotary pairs, G cells, D width of
the language model, S tokens of a span.

Source: vision tower and aligner of DeepSeek-V4.1-Flash.
"""

from collections.abc import Sequence

import torch
from torch.nn import functional

from deepinfer_core.errors import RequestError
from deepinfer_core.model.image_geometry import ImageGeometry, TokenType, span_types
from deepinfer_core.model.vision_weights import VisionBlock, VisionWeights

__all__ = ["align", "encode_image", "rotary_tables", "run_tower"]

_NORM_EPS = 1e-6


@torch.inference_mode()
def encode_image(
    weights: VisionWeights, patch_NC: torch.Tensor, geometry: ImageGeometry
) -> torch.Tensor:
    """The embedding rows of an image's whole span.

    Args:
        weights: tower, aligner and markers.
        patch_NC: normalised patches, row-major; any float dtype.
        geometry: the image's grids.

    Returns:
        [S, D] in the weights' dtype, on their device.

    Raises:
        RequestError: the number of patches is not that of the geometry.
    """
    grid = (geometry.patch_rows, geometry.patch_columns)
    cell_GD = align(weights, run_tower(weights, patch_NC, *grid), *grid)
    return _span_rows(weights, cell_GD, span_types(geometry))


def run_tower(
    weights: VisionWeights, patch_NC: torch.Tensor, rows: int, columns: int
) -> torch.Tensor:
    """Features of all patches after the final norm, [N, W].

    Raises:
        RequestError: there are not ``rows * columns`` patches.
    """
    if patch_NC.shape[0] != rows * columns:
        raise RequestError(
            f"asked for a grid of {rows} x {columns} patches, found {patch_NC.shape[0]} patches",
            hint="cut the image with the geometry that goes with it",
        )
    embed = weights.patch_weight_WC
    x_NW = functional.linear(patch_NC.to(embed), embed, weights.patch_bias_W)
    heads = weights.config.num_attention_heads
    cosine_NP, sine_NP = rotary_tables(
        rows, columns, embed.shape[0] // heads // 2, weights.config.rope_theta
    )
    cosine_NP, sine_NP = cosine_NP.to(embed.device), sine_NP.to(embed.device)
    for block in weights.blocks:
        x_NW = x_NW + _attend(block, _norm(x_NW, block.norm1_W), heads, cosine_NP, sine_NP)
        x_NW = x_NW + _mlp(block, _norm(x_NW, block.norm2_W))
    return _norm(x_NW, weights.norm_W)


def align(
    weights: VisionWeights, feature_NW: torch.Tensor, rows: int, columns: int
) -> torch.Tensor:
    """One row of the language model's width for each cell of patches, row-major, [G, D]."""
    side = weights.config.downsample_ratio
    grid = feature_NW.view(rows, columns, -1)
    grid = functional.pad(grid, (0, 0, 0, -columns % side, 0, -rows % side))
    cells = grid.view(grid.shape[0] // side, side, grid.shape[1] // side, side, -1)
    cell_G = cells.permute(0, 2, 4, 1, 3).reshape(cells.shape[0] * cells.shape[2], -1)
    hidden = functional.gelu(functional.linear(cell_G, weights.aligner_w1, weights.aligner_b1))
    return functional.linear(hidden, weights.aligner_w2, weights.aligner_b2)


def rotary_tables(
    rows: int, columns: int, pairs: int, theta: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of a grid's two-dimensional rotary positions.

    Args:
        rows: patch rows.
        columns: patch columns.
        pairs: half a head's width; the first half of the pairs turns with the row, the second with
            the column.
        theta: base of the frequencies.

    Returns:
        Two fp32 tensors [rows * columns, pairs] on the host.
    """
    exponent = torch.arange(0, pairs, 2, dtype=torch.float32) / pairs
    frequency = 1.0 / theta**exponent
    row_angle = torch.arange(rows, dtype=torch.float32)[:, None] * frequency
    column_angle = torch.arange(columns, dtype=torch.float32)[:, None] * frequency
    angle_NP = torch.cat(
        (row_angle.repeat_interleave(columns, dim=0), column_angle.repeat(rows, 1)), dim=1
    )
    return angle_NP.cos(), angle_NP.sin()


def _span_rows(
    weights: VisionWeights, cell_GD: torch.Tensor, types: Sequence[TokenType]
) -> torch.Tensor:
    marker = {
        TokenType.START: weights.start_D,
        TokenType.NEWLINE: weights.newline_D,
        TokenType.END: weights.end_D,
    }
    cells = iter(cell_GD)
    return torch.stack([next(cells) if t is TokenType.IMAGE else marker[t] for t in types])


def _attend(
    block: VisionBlock,
    x_NW: torch.Tensor,
    heads: int,
    cosine_NP: torch.Tensor,
    sine_NP: torch.Tensor,
) -> torch.Tensor:
    qkv = functional.linear(x_NW, block.wqkv, block.wqkv_bias)
    q_HNd, k_HNd, v_HNd = qkv.view(x_NW.shape[0], 3, heads, -1).permute(1, 2, 0, 3)
    attended_HNd = functional.scaled_dot_product_attention(
        _rotate(q_HNd, cosine_NP, sine_NP), _rotate(k_HNd, cosine_NP, sine_NP), v_HNd
    )
    return functional.linear(attended_HNd.transpose(0, 1).flatten(1), block.wo, block.wo_bias)


def _mlp(block: VisionBlock, x_NW: torch.Tensor) -> torch.Tensor:
    gate, up = functional.linear(x_NW, block.w1).chunk(2, dim=1)
    return functional.linear(functional.silu(gate) * up, block.w2)


def _norm(x_NW: torch.Tensor, weight_W: torch.Tensor) -> torch.Tensor:
    x = x_NW.to(_accumulation(x_NW.dtype))
    scale = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + _NORM_EPS)
    return (x * scale * weight_W.to(x.dtype)).to(x_NW.dtype)


def _rotate(x_HNd: torch.Tensor, cosine_NP: torch.Tensor, sine_NP: torch.Tensor) -> torch.Tensor:
    """Turn channel j with channel j + P, in half-split form."""
    first, second = x_HNd.to(_accumulation(x_HNd.dtype)).chunk(2, dim=-1)
    turned = torch.cat(
        (first * cosine_NP - second * sine_NP, second * cosine_NP + first * sine_NP), dim=-1
    )
    return turned.to(x_HNd.dtype)


def _accumulation(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
