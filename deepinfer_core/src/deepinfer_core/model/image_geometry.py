"""To which size is an image brought, and how many tokens does it become?

All lengths are pixels unless they are called patches (14 pixels) or cells (3 patches a side, one
token of the language model). An image becomes one span of tokens: START, then for each row of cells
its cells and a NEWLINE, then END. Images of fewer than min_pixels are enlarged to about that area,
those wider than max_wh_ratio are squeezed, and a span of more than max_image_tokens is made to fit.

Pure arithmetic. The order of the floating-point operations is part of the contract: a different one
can lose a whole patch row to rounding.

Source: the image processor published with DeepSeek-V4.1-Flash.
"""

import math
from dataclasses import dataclass
from enum import IntEnum

from deepinfer_core.errors import RequestError
from deepinfer_core.model.config import VisionConfig

__all__ = [
    "ImageGeometry",
    "TokenType",
    "fit_within",
    "image_geometry",
    "span_ids",
    "span_types",
]

_SPAN_ENDS_TOKENS = 2  # START and END


class TokenType(IntEnum):
    """What a prompt position holds; IMAGE and above belong to an image span."""

    TEXT = 1
    IMAGE = 2
    START = 3
    END = 4
    NEWLINE = 5
    PAD = 6


_ID_BEYOND_VOCABULARY = {
    TokenType.START: 0,
    TokenType.PAD: 1,
    TokenType.IMAGE: 2,
    TokenType.NEWLINE: 3,
    TokenType.END: 4,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageGeometry:
    """Sizes of one image on its way to the model.

    Attributes:
        width: of the canvas in pixels, a multiple of the patch size.
        height: of the canvas in pixels.
        patch_columns: patches in a row of the canvas.
        patch_rows: rows of patches.
        cell_columns: cells in a row, one image token each.
        cell_rows: rows of cells.
        stretched: the image fills the canvas without keeping its aspect.
    """

    width: int
    height: int
    patch_columns: int
    patch_rows: int
    cell_columns: int
    cell_rows: int
    stretched: bool

    @property
    def cells(self) -> int:
        """Image tokens proper."""
        return self.cell_rows * self.cell_columns

    @property
    def tokens(self) -> int:
        """Length of the whole span."""
        return self.cell_rows * (self.cell_columns + 1) + _SPAN_ENDS_TOKENS


def image_geometry(width: int, height: int, config: VisionConfig) -> ImageGeometry:
    """Plan the canvas, patches and cells of an image.

    Args:
        width: of the image in pixels.
        height: of the image in pixels.
        config: the geometry keys are read.

    Raises:
        RequestError: an empty image, or one whose shape fits no canvas within the token limit.
    """
    if width < 1 or height < 1:
        raise RequestError(
            f"asked for an image, found one of {width} x {height} pixels",
            hint="send an image of at least one pixel a side",
        )
    ratio = config.max_wh_ratio
    stretched = ratio is not None and width >= ratio * height
    logical_width, logical_height = _logical_size(width, height, config)
    patch = config.patch_size
    geometry = _on_canvas(
        math.ceil(logical_width / patch) * patch,
        math.ceil(logical_height / patch) * patch,
        config,
        stretched,
    )
    if geometry.tokens > config.max_image_tokens:
        geometry = _on_canvas(*_shrunk(logical_width, logical_height, config), config, stretched)
    if min(geometry.width, geometry.height) < 1 or geometry.tokens > config.max_image_tokens:
        raise RequestError(
            f"asked for at most {config.max_image_tokens} image tokens, found that an image of"
            f" {width} x {height} pixels fits no such canvas",
            hint="send an image that is closer to a square",
        )
    return geometry


def fit_within(width: int, height: int, box_width: int, box_height: int) -> tuple[int, int]:
    """The largest size of the same aspect inside a box; a side may round to zero.

    Sides are rounded half to even.
    """
    aspect, box_aspect = width / height, box_width / box_height
    if aspect > box_aspect:
        return box_width, round(height / width * box_width)
    if aspect < box_aspect:
        return round(width / height * box_height), box_height
    return box_width, box_height


def span_types(geometry: ImageGeometry) -> list[TokenType]:
    """The types of an image's whole span, in order."""
    row = [TokenType.IMAGE] * geometry.cell_columns + [TokenType.NEWLINE]
    return [TokenType.START, *(row * geometry.cell_rows), TokenType.END]


def span_ids(types: list[TokenType], vocab_size: int) -> list[int]:
    """Internal token ids of a span: sentinels just beyond the vocabulary.

    Raises:
        RequestError: a text token is among the types.
    """
    if TokenType.TEXT in types:
        raise RequestError(
            "asked for the ids of an image span, found a text token in it",
            hint="pass the types of one span only",
        )
    return [vocab_size + _ID_BEYOND_VOCABULARY[kind] for kind in types]


def _logical_size(width: int, height: int, config: VisionConfig) -> tuple[float, float]:
    """The size that the canvas is planned for: squeezed if too wide, enlarged if too small."""
    wide: float = width
    high: float = height
    if config.max_wh_ratio is not None and wide > high * config.max_wh_ratio:
        wide = high * config.max_wh_ratio
    if wide * high < config.min_pixels:
        scale = (config.min_pixels / (wide * high)) ** 0.5
        wide, high = int(wide * scale), int(high * scale)
    return wide, high


def _shrunk(width: float, height: float, config: VisionConfig) -> tuple[int, int]:
    """The canvas of an image that would need too many tokens."""
    patch, tokens = config.patch_size, config.max_image_tokens - _SPAN_ENDS_TOKENS
    cell = patch * config.downsample_ratio
    aspect = height / width
    columns = math.sqrt(tokens / aspect + 0.25) - 0.5  # solves rows * (columns + 1) = tokens
    rows = columns * aspect
    if columns < 1:
        return cell, tokens // 2 * cell
    if rows < 1:
        return (tokens - 1) * cell, cell
    scale = min(math.floor(columns) * cell / width, math.floor(rows) * cell / height)
    return (
        math.floor(width * scale / patch) * patch,
        math.floor(height * scale / patch) * patch,
    )


def _on_canvas(width: int, height: int, config: VisionConfig, stretched: bool) -> ImageGeometry:
    columns, rows = width // config.patch_size, height // config.patch_size
    return ImageGeometry(
        width=width,
        height=height,
        patch_columns=columns,
        patch_rows=rows,
        cell_columns=math.ceil(columns / config.downsample_ratio),
        cell_rows=math.ceil(rows / config.downsample_ratio),
        stretched=stretched,
    )
