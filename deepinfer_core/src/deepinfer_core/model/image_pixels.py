"""Which patch values does the vision tower see for an image file?

Decoding and resampling are Pillow's, the ``vision`` extra of deepinfer-core; it is imported when
the first image arrives, so that a text-only installation needs none.

The image is brought to RGB, fitted into its canvas without changing its aspect (stretched where the
geometry says so, or where fitting would leave it without width or height), centred on grey, mapped
from 0..255 to -1..1 and cut into patches.

Shapes: N patches, row-major; C = 3 * patch_size ** 2 values a patch, channel-major.

Source: the image processor published with DeepSeek-V4.1-Flash.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from deepinfer_core.errors import NotSupported, RequestError
from deepinfer_core.model.config import VisionConfig
from deepinfer_core.model.image_geometry import (
    ImageGeometry,
    fit_within,
    image_geometry,
)

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["ImagePatches", "image_patches", "patches_of"]

_GREY = (127, 127, 127)
_MEAN = 0.5
_STD = 0.5
_CHANNELS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePatches:
    """One image as the tower reads it.

    Attributes:
        patch_NC: bf16 on the host.
        geometry: its canvas and grids.
    """

    patch_NC: torch.Tensor
    geometry: ImageGeometry


def image_patches(encoded: bytes, config: VisionConfig) -> ImagePatches:
    """Decode an image file and cut it into patches.

    Args:
        encoded: the bytes of a file in a format that Pillow reads.
        config: the geometry keys are read.

    Raises:
        NotSupported: Pillow is not installed.
        RequestError: the bytes are no readable image, or its shape fits no canvas.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise NotSupported(
            "asked for an image in a prompt, found no Pillow to decode it with",
            hint='pip install -e "./deepinfer_core[vision]"',
        ) from error
    try:
        with Image.open(io.BytesIO(encoded)) as opened:
            image = opened.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise RequestError(
            f"asked for an image, found {len(encoded)} bytes that cannot be decoded: {error}",
            hint="send a PNG, JPEG or another format that Pillow reads",
        ) from error
    geometry = image_geometry(image.width, image.height, config)
    return ImagePatches(
        patch_NC=patches_of(_pixels(_on_canvas(image, geometry)), config.patch_size),
        geometry=geometry,
    )


def patches_of(pixel_HWC: torch.Tensor, patch_size: int) -> torch.Tensor:
    """Map bytes to -1..1 and cut into patches.

    Args:
        pixel_HWC: uint8 [height, width, 3]; both sides are multiples of the patch size.
        patch_size: side of a patch in pixels.

    Returns:
        bf16 [N, C], new memory.
    """
    height, width, _ = pixel_HWC.shape
    value_HWC = ((pixel_HWC.to(torch.float32) / 255 - _MEAN) / _STD).to(torch.bfloat16)
    rows, columns = height // patch_size, width // patch_size
    cut = value_HWC.view(rows, patch_size, columns, patch_size, _CHANNELS)
    return cut.permute(0, 2, 4, 1, 3).reshape(rows * columns, _CHANNELS * patch_size**2)


def _on_canvas(image: Image.Image, geometry: ImageGeometry) -> Image.Image:
    from PIL import Image

    canvas_size = (geometry.width, geometry.height)
    fitted = fit_within(image.width, image.height, *canvas_size)
    if geometry.stretched or min(fitted) < 1:
        fitted = canvas_size
    resized = image.resize(fitted, Image.Resampling.BICUBIC)
    if fitted == canvas_size:
        return resized
    canvas = Image.new("RGB", canvas_size, _GREY)
    slack = (geometry.width - fitted[0], geometry.height - fitted[1])
    canvas.paste(resized, (round(slack[0] / 2), round(slack[1] / 2)))
    return canvas


def _pixels(image: Image.Image) -> torch.Tensor:
    flat = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    return flat.view(image.height, image.width, _CHANNELS)
