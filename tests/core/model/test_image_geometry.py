"""Do images of all shapes get the published canvas, patches, cells and span?"""

import subprocess
import sys

import pytest
from deepinfer_core.errors import RequestError
from deepinfer_core.model.config import VisionConfig
from deepinfer_core.model.image_geometry import (
    ImageGeometry,
    TokenType,
    fit_within,
    image_geometry,
    span_ids,
    span_types,
)
from hypothesis import given
from hypothesis import strategies as st


def _config(
    *,
    max_image_tokens: int = 1024,
    min_pixels: int = 544 * 544,
    max_wh_ratio: float | None = None,
) -> VisionConfig:
    return VisionConfig(
        num_hidden_layers=32,
        hidden_size=1024,
        num_attention_heads=16,
        intermediate_size=2816,
        patch_size=14,
        downsample_ratio=3,
        max_image_tokens=max_image_tokens,
        min_pixels=min_pixels,
        max_wh_ratio=max_wh_ratio,
    )


def _sizes(geometry: ImageGeometry) -> tuple[tuple[int, int], ...]:
    return (
        (geometry.width, geometry.height),
        (geometry.patch_columns, geometry.patch_rows),
        (geometry.cell_columns, geometry.cell_rows),
    )


@pytest.mark.parametrize(
    ("image", "canvas", "patches", "cells", "tokens"),
    [
        ((224, 224), (546, 546), (39, 39), (13, 13), 184),
        ((640, 480), (644, 490), (46, 35), (16, 12), 206),
        ((1024, 768), (1036, 770), (74, 55), (25, 19), 496),
        ((1920, 1080), (1708, 966), (122, 69), (41, 23), 968),
        ((4000, 3000), (1512, 1134), (108, 81), (36, 27), 1001),
        ((100, 2000), (126, 2436), (9, 174), (3, 58), 234),
        ((20000, 30), (20006, 42), (1429, 3), (477, 1), 480),
    ],
)
def test_published_examples_come_out(
    image: tuple[int, int],
    canvas: tuple[int, int],
    patches: tuple[int, int],
    cells: tuple[int, int],
    tokens: int,
) -> None:
    geometry = image_geometry(*image, _config())
    assert _sizes(geometry) == (canvas, patches, cells)
    assert geometry.tokens == tokens


def test_an_image_of_exactly_the_smallest_area_is_not_enlarged() -> None:
    assert image_geometry(544, 544, _config()).width == 546  # 544 rounded up to whole patches
    assert image_geometry(543, 545, _config()).width == 546  # one pixel less, enlarged by 1.000002


def test_enlarged_sides_are_cut_to_whole_pixels() -> None:
    # sqrt(295936 / 7750) = 6.17940: sides 308.97 and 957.8; rounded up, 309 would take one more
    # patch than 308.
    assert _sizes(image_geometry(50, 155, _config()))[0] == (308, 966)


def test_one_pixel_becomes_the_smallest_square() -> None:
    assert _sizes(image_geometry(1, 1, _config()))[0] == (546, 546)


def test_a_side_of_whole_patches_is_kept_and_one_pixel_more_adds_a_patch() -> None:
    assert image_geometry(700, 700, _config()).patch_columns == 50
    assert image_geometry(701, 700, _config()).patch_columns == 51


def test_a_partial_cell_counts_as_a_cell() -> None:
    wanted = [(14 * patches, cells) for patches, cells in ((42, 14), (43, 15), (44, 15), (45, 15))]
    found = [(w, image_geometry(w, 588, _config()).cell_columns) for w, _ in wanted]
    assert found == wanted


@pytest.mark.parametrize(("limit", "shrunk"), [(183, True), (184, False), (185, False)])
def test_only_a_span_above_the_limit_is_shrunk(limit: int, shrunk: bool) -> None:
    geometry = image_geometry(546, 546, _config(max_image_tokens=limit))  # 184 tokens
    assert (geometry.width < 546) is shrunk
    assert geometry.tokens <= limit


def test_a_span_of_exactly_the_limit_keeps_its_canvas() -> None:
    # 198 tokens; shrinking would give (518, 546), which also fits.
    assert _sizes(image_geometry(500, 514, _config(max_image_tokens=198)))[0] == (546, 560)


def test_a_very_tall_image_becomes_one_column_of_cells() -> None:
    geometry = image_geometry(10, 100_000, _config())
    assert (geometry.cell_columns, geometry.cell_rows) == (1, 511)
    assert geometry.tokens == 1024


def test_a_very_wide_image_becomes_one_row_of_cells() -> None:
    geometry = image_geometry(100_000, 10, _config())
    assert (geometry.cell_columns, geometry.cell_rows) == (1021, 1)
    assert geometry.tokens == 1024


@pytest.mark.parametrize(("width", "stretched"), [(3999, False), (4000, True), (4001, True)])
def test_images_from_the_widest_aspect_on_are_stretched(width: int, stretched: bool) -> None:
    assert image_geometry(width, 1000, _config(max_wh_ratio=4.0)).stretched is stretched


def test_a_too_wide_image_gets_the_canvas_of_the_widest_aspect() -> None:
    limited = _config(max_wh_ratio=2.0)
    assert _sizes(image_geometry(9000, 700, limited)) == _sizes(image_geometry(1400, 700, limited))


def test_without_a_widest_aspect_nothing_is_stretched() -> None:
    assert not image_geometry(20000, 30, _config()).stretched


@pytest.mark.parametrize(("width", "height"), [(0, 5), (5, 0), (-1, 5)])
def test_an_image_without_area_is_refused(width: int, height: int) -> None:
    with pytest.raises(RequestError, match=f"found one of {width} x {height}"):
        image_geometry(width, height, _config())


def test_a_limit_that_no_cell_fits_is_refused() -> None:
    with pytest.raises(RequestError, match="at most 3 image tokens"):
        image_geometry(600, 600, _config(max_image_tokens=3))


@given(st.integers(1, 30_000), st.integers(1, 30_000), st.sampled_from([None, 1.0, 3.5, 200.0]))
def test_every_shape_fits_the_token_limit(width: int, height: int, ratio: float | None) -> None:
    geometry = image_geometry(width, height, _config(max_wh_ratio=ratio))
    assert geometry.tokens <= 1024
    assert geometry.width == 14 * geometry.patch_columns > 0
    assert geometry.height == 14 * geometry.patch_rows > 0
    assert 3 * geometry.cell_columns - 2 <= geometry.patch_columns <= 3 * geometry.cell_columns
    assert 3 * geometry.cell_rows - 2 <= geometry.patch_rows <= 3 * geometry.cell_rows


@pytest.mark.parametrize(
    ("image", "box", "expected"),
    [
        ((10, 10), (20, 20), (20, 20)),
        ((20, 10), (20, 20), (20, 10)),
        ((10, 20), (20, 20), (10, 20)),
        ((3, 2), (15, 20), (15, 10)),
        ((4, 1), (10, 10), (10, 2)),  # 2.5 rounds to even
        ((4, 3), (2, 9), (2, 2)),  # 1.5 rounds to even
        ((1000, 1), (100, 100), (100, 0)),
    ],
)
def test_fitting_keeps_the_aspect(
    image: tuple[int, int], box: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert fit_within(*image, *box) == expected


def test_a_span_is_a_start_rows_that_end_in_newlines_and_an_end() -> None:
    geometry = image_geometry(84, 42, _config(min_pixels=1))
    cell, newline = TokenType.IMAGE, TokenType.NEWLINE
    assert span_types(geometry) == [TokenType.START, cell, cell, newline, TokenType.END]


@given(st.integers(1, 3000), st.integers(1, 3000))
def test_a_span_has_as_many_tokens_and_cells_as_planned(width: int, height: int) -> None:
    geometry = image_geometry(width, height, _config())
    types = span_types(geometry)
    assert len(types) == geometry.tokens
    assert types.count(TokenType.IMAGE) == geometry.cells


def test_token_types_have_their_wire_numbers() -> None:
    assert {kind.name: int(kind) for kind in TokenType} == {
        "TEXT": 1,
        "IMAGE": 2,
        "START": 3,
        "END": 4,
        "NEWLINE": 5,
        "PAD": 6,
    }


def test_span_ids_lie_just_beyond_the_vocabulary() -> None:
    kinds = [TokenType.START, TokenType.PAD, TokenType.IMAGE, TokenType.NEWLINE, TokenType.END]
    assert span_ids(kinds, 129280) == [129280, 129281, 129282, 129283, 129284]


def test_a_text_token_inside_a_span_is_refused() -> None:
    with pytest.raises(RequestError, match="found a text token"):
        span_ids([TokenType.START, TokenType.TEXT], 129280)


def test_planning_an_image_loads_no_tensor_library() -> None:
    code = "import deepinfer_core.model.image_geometry, sys; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
