"""Do tower and aligner give the published values, and is a span laid out as planned?"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from deepinfer_core.errors import NotSupported, RequestError
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.model.image_geometry import ImageGeometry
from deepinfer_core.model.vision import align, encode_image, rotary_tables, run_tower
from deepinfer_core.model.vision_weights import (
    VisionWeights,
    load_vision_weights,
)
from deepinfer_core.numeric import QuantTensor
from deepinfer_core.testing.tiny import golden_vision_weights, tiny_test_config

MODEL = tiny_test_config(vision=True)
HIDDEN_WIDTH = 128
GRID = (4, 5)
GEOMETRY = ImageGeometry(
    width=70,
    height=56,
    patch_columns=5,
    patch_rows=4,
    cell_columns=2,
    cell_rows=2,
    stretched=False,
)


def _golden_tensors() -> dict[str, torch.Tensor]:
    """The weights that the published tiny values were computed with, and three markers."""
    markers = {
        name: torch.full((HIDDEN_WIDTH,), 100.0 + marker)
        for marker, name in enumerate(("image_start", "image_newline", "image_end"))
    }
    return golden_vision_weights(MODEL) | markers


@dataclass(frozen=True)
class _Tensors:
    """A checkpoint in memory."""

    tensors: dict[str, torch.Tensor]
    config: ModelConfig = MODEL

    def tensor(self, name: str) -> torch.Tensor:
        return self.tensors[name]

    def quant(self, name: str) -> QuantTensor:
        raise AssertionError(f"{name} is not stored with scales")

    def experts(self, prefix: str) -> tuple[QuantTensor, QuantTensor]:
        raise AssertionError(f"{prefix} is no part of the tower")


def _load(tensors: dict[str, torch.Tensor], dtype: torch.dtype = torch.float32) -> VisionWeights:
    return load_vision_weights(_Tensors(tensors), dtype=dtype, device=torch.device("cpu"))


@pytest.fixture(scope="module")
def weights() -> VisionWeights:
    return _load(_golden_tensors())


@pytest.fixture(scope="module")
def patches() -> torch.Tensor:
    return torch.from_numpy(np.sin(0.01 * np.arange(20 * 588)).astype(np.float32)).view(20, 588)


# Published with four decimals: half a unit in the last place, and fp32 noise of 2e-6.
PRINTED = {"atol": 5.2e-5, "rtol": 0}


def test_the_tower_gives_the_published_features(
    weights: VisionWeights, patches: torch.Tensor
) -> None:
    feature_NW = run_tower(weights, patches, *GRID)
    expected = torch.tensor(
        [[-0.6643, 1.1246, -0.0710, -0.7389], [1.0415, 0.5065, 0.1789, -0.7230]]
    )
    torch.testing.assert_close(feature_NW[[0, 19], :4], expected, **PRINTED)


def test_the_aligner_gives_the_published_rows(
    weights: VisionWeights, patches: torch.Tensor
) -> None:
    cell_GD = align(weights, run_tower(weights, patches, *GRID), *GRID)
    expected = torch.tensor(
        [
            [0.4648, 1.1618, 1.9696, 0.9538],
            [-0.5418, 0.6488, 1.0077, 0.3241],
            [0.3936, 0.5376, 0.8972, -0.5381],
            [-0.5943, 0.5141, 0.2936, -0.1829],
        ]
    )
    assert cell_GD.shape == (4, HIDDEN_WIDTH)
    torch.testing.assert_close(cell_GD[:, :4], expected, **PRINTED)


def test_a_span_holds_markers_around_the_rows_of_cells(
    weights: VisionWeights, patches: torch.Tensor
) -> None:
    span_SD = encode_image(weights, patches, GEOMETRY)
    cell_GD = align(weights, run_tower(weights, patches, *GRID), *GRID)
    assert span_SD.shape == (GEOMETRY.tokens, HIDDEN_WIDTH)
    assert span_SD[[0, 3, 6, 7], 0].tolist() == [100.0, 101.0, 101.0, 102.0]
    assert torch.equal(span_SD[[1, 2, 4, 5]], cell_GD)


def test_every_patch_sees_every_other_one(weights: VisionWeights, patches: torch.Tensor) -> None:
    changed_NC = patches.clone()
    changed_NC[19] += 1
    moved = run_tower(weights, changed_NC, *GRID) - run_tower(weights, patches, *GRID)
    assert float(moved[0].abs().max()) > 1e-3


def test_row_and_column_positions_are_told_apart(
    weights: VisionWeights, patches: torch.Tensor
) -> None:
    tall = run_tower(weights, patches, 5, 4)
    assert float((tall - run_tower(weights, patches, *GRID)).abs().max()) > 1e-3


def test_rotary_angles_are_row_angles_then_column_angles() -> None:
    cosine_NP, sine_NP = rotary_tables(3, 5, 4, 10000.0)
    row, column = 2, 3
    angle = torch.tensor([row, row * 0.01, column, column * 0.01])
    # fp32 powers, products and cosines: a few units of 6e-8 at angles up to 3.
    torch.testing.assert_close(cosine_NP[row * 5 + column], angle.cos(), atol=1e-6, rtol=0)
    torch.testing.assert_close(sine_NP[row * 5 + column], angle.sin(), atol=1e-6, rtol=0)


def test_cells_are_padded_with_zeros_to_the_right_and_below(weights: VisionWeights) -> None:
    feature_NW = torch.ones(20, 64)
    padded = torch.zeros(6, 6, 64)
    padded[:4, :5] = 1
    assert torch.equal(align(weights, feature_NW, *GRID), align(weights, padded.view(36, 64), 6, 6))


def test_one_patch_makes_one_cell(weights: VisionWeights) -> None:
    assert align(weights, run_tower(weights, torch.zeros(1, 588), 1, 1), 1, 1).shape == (1, 128)


def test_the_weights_dtype_is_the_results(patches: torch.Tensor) -> None:
    tensors = _golden_tensors()
    exact = encode_image(_load(tensors, torch.float64), patches, GEOMETRY)
    coarse = encode_image(_load(tensors, torch.bfloat16), patches, GEOMETRY)
    assert (exact.dtype, coarse.dtype) == (torch.float64, torch.bfloat16)
    # About 20 roundings of relative size 2^-9 follow each other; cell values have deviation 1.
    assert float((coarse[1] - exact[1]).abs().mean()) < 20 * 2**-9


@pytest.mark.parametrize("count", [0, 19, 21])
def test_another_number_of_patches_than_the_grids_is_refused(
    weights: VisionWeights, count: int
) -> None:
    with pytest.raises(RequestError, match=f"found {count} patches"):
        run_tower(weights, torch.zeros(count, 588), *GRID)


def test_a_text_only_checkpoint_has_no_tower() -> None:
    with pytest.raises(NotSupported, match="without vision_config"):
        load_vision_weights(
            _Tensors({}, tiny_test_config()), dtype=torch.float32, device=torch.device("cpu")
        )
