"""Do an image's pixels reach the right patch, channel and value?"""

import io
import random
import sys

import pytest
import torch
from deepinfer_core.errors import NotSupported, RequestError
from deepinfer_core.model.config import VisionConfig
from deepinfer_core.model.image_pixels import image_patches, patches_of

pytest.importorskip("PIL", reason="needs Pillow: pip install 'deepinfer-core[vision]'")
from PIL import Image


@pytest.fixture
def noise(request: pytest.FixtureRequest) -> bytes:
    """Bytes that do not compress, for an image of 200 x 200 pixels."""
    return random.Random(request.node.name).randbytes(3 * 200 * 200)


GREY = torch.tensor((127 / 255 - 0.5) / 0.5).to(torch.bfloat16)


def _config(max_wh_ratio: float | None = None, max_image_tokens: int = 1024) -> VisionConfig:
    return VisionConfig(
        num_hidden_layers=2,
        hidden_size=64,
        num_attention_heads=2,
        intermediate_size=128,
        patch_size=14,
        downsample_ratio=3,
        max_image_tokens=max_image_tokens,
        min_pixels=1,
        max_wh_ratio=max_wh_ratio,
    )


def _encoded(image: Image.Image, form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form)
    return buffer.getvalue()


def _canvas(encoded: bytes, config: VisionConfig) -> torch.Tensor:
    """The pixels [height, width, 3] that the patches were cut from."""
    patches = image_patches(encoded, config)
    rows, columns = patches.geometry.patch_rows, patches.geometry.patch_columns
    grid = patches.patch_NC.view(rows, columns, 3, 14, 14).permute(0, 3, 1, 4, 2)
    return grid.reshape(rows * 14, columns * 14, 3)


def test_bytes_map_to_minus_one_to_one_in_bf16() -> None:
    ramp_HWC = torch.arange(14 * 14 * 3, dtype=torch.int64).remainder(256).view(14, 14, 3)
    expected = ((ramp_HWC.float() / 255 - 0.5) / 0.5).to(torch.bfloat16)
    patch = patches_of(ramp_HWC.to(torch.uint8), 14)
    assert patch.dtype == torch.bfloat16
    assert torch.equal(patch.view(3, 14, 14), expected.permute(2, 0, 1))


def test_patches_run_along_rows_and_hold_channel_row_column() -> None:
    pixel_HWC = torch.zeros(28, 42, 3, dtype=torch.uint8)
    pixel_HWC[14 + 5, 28 + 7, 1] = 255
    patch_NC = patches_of(pixel_HWC, 14)
    lit = (patch_NC == 1).nonzero().tolist()
    assert patch_NC.shape == (6, 588)
    assert lit == [[1 * 3 + 2, 1 * 196 + 5 * 14 + 7]]


def test_an_image_of_the_canvas_size_passes_unchanged() -> None:
    image = Image.frombytes("RGB", (28, 14), bytes(i % 251 for i in range(28 * 14 * 3)))
    pixel_HWC = torch.tensor(list(image.tobytes()), dtype=torch.uint8).view(14, 28, 3)
    assert torch.equal(
        image_patches(_encoded(image), _config()).patch_NC, patches_of(pixel_HWC, 14)
    )


def test_a_narrower_image_is_centred_on_grey() -> None:
    # 20 x 42 on a canvas of 28 x 42: fitted as it is, 8 columns of slack, 4 on each side.
    canvas = _canvas(_encoded(Image.new("RGB", (20, 42), (255, 0, 255))), _config())
    assert canvas.shape == (42, 28, 3)
    assert bool((canvas[:, :4] == GREY).all())
    assert bool((canvas[:, 24:] == GREY).all())
    assert bool((canvas[:, 4:24] == torch.tensor([1.0, -1.0, 1.0])).all())


def test_a_flatter_image_is_centred_on_grey() -> None:
    canvas = _canvas(_encoded(Image.new("RGB", (42, 20), (255, 255, 255))), _config())
    assert canvas.shape == (28, 42, 3)
    assert bool((canvas[:4] == GREY).all())
    assert bool((canvas[24:] == GREY).all())
    assert bool((canvas[4:24] == 1).all())


@pytest.mark.parametrize(("side", "offset"), [(25, 2), (27, 0), (23, 2)])
def test_half_a_pixel_of_slack_goes_to_the_even_offset(side: int, offset: int) -> None:
    # Slack 3, 1 and 5: offsets 1.5, 0.5 and 2.5 round to even.
    flat = _canvas(_encoded(Image.new("RGB", (42, side), (255, 255, 255))), _config())
    tall = _canvas(_encoded(Image.new("RGB", (side, 42), (255, 255, 255))), _config())
    assert (flat.shape, tall.shape) == ((28, 42, 3), (42, 28, 3))
    assert int((flat[:, 0, 0] == 1).nonzero()[0]) == offset
    assert int((tall[0, :, 0] == 1).nonzero()[0]) == offset


def test_an_image_at_the_widest_aspect_is_stretched_without_grey() -> None:
    canvas = _canvas(_encoded(Image.new("RGB", (90, 20), (255, 255, 255))), _config(2.0))
    assert canvas.shape == (28, 42, 3)
    assert bool((canvas == 1).all())


def test_an_image_that_would_lose_a_side_is_stretched() -> None:
    # One pixel high in 42 x 378: keeping its aspect would leave 0.04 pixels of width.
    canvas = _canvas(_encoded(Image.new("RGB", (1, 9000), (255, 255, 255))), _config(None, 20))
    assert canvas.shape == (378, 42, 3)
    assert bool((canvas == 1).all())


@pytest.mark.parametrize(
    ("mode", "colour"), [("L", 255), ("RGBA", (255, 255, 255, 255)), ("P", 0), ("1", 1)]
)
def test_other_colour_modes_are_brought_to_rgb(mode: str, colour: object) -> None:
    image = Image.new(mode, (14, 14), colour)  # type: ignore[arg-type]
    if mode == "P":
        image.putpalette([255, 255, 255])
    assert bool((image_patches(_encoded(image), _config()).patch_NC == 1).all())


def test_a_jpeg_is_decoded() -> None:
    patches = image_patches(_encoded(Image.new("RGB", (14, 14), (255,) * 3), "JPEG"), _config())
    assert bool((patches.patch_NC == 1).all())


@pytest.mark.parametrize("encoded", [b"", b"not an image"])
def test_bytes_that_are_no_image_are_refused(encoded: bytes) -> None:
    with pytest.raises(RequestError, match=f"{len(encoded)} bytes that cannot be decoded"):
        image_patches(encoded, _config())


def test_a_truncated_image_is_refused() -> None:
    encoded = _encoded(Image.frombytes("RGB", (90, 90), bytes(i % 251 for i in range(24300))))
    with pytest.raises(RequestError, match="cannot be decoded"):
        image_patches(encoded[: len(encoded) // 2], _config())


def test_an_image_with_a_damaged_chunk_is_refused(noise: bytes) -> None:
    encoded = _encoded(Image.frombytes("RGB", (200, 200), noise))
    first = encoded.index(b"IDAT")
    second = encoded.index(b"IDAT", first + 1)
    with pytest.raises(RequestError, match="broken PNG file"):
        image_patches(encoded[:second] + bytes(4) + encoded[second + 4 :], _config())


def test_without_pillow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(NotSupported, match=r"deepinfer_core\[vision\]"):
        image_patches(b"", _config())
