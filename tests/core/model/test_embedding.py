"""Are rows looked up exactly, in whatever format a table is stored?"""

import pytest
import torch
from deepinfer_core.model.embedding import embed
from deepinfer_core.model.engram import gather_rows
from deepinfer_core.numeric import QuantTensor, quantise

ROWS, WIDTH = 9, 32


@pytest.fixture
def values(request: pytest.FixtureRequest) -> torch.Tensor:
    seed = int.from_bytes(request.node.name.encode()[:7], "big")
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(seed))


def plain(values: torch.Tensor) -> QuantTensor:
    return QuantTensor(data=values, scale=None, format="float32")


def test_ids_outside_the_vocabulary_embed_to_zero(values: torch.Tensor) -> None:
    found = embed(plain(values), torch.tensor([-1, 0, ROWS - 1, ROWS, 10**9]), torch.float32)
    assert torch.equal(found[[1, 2]], values[[0, ROWS - 1]])
    assert not found[[0, 3, 4]].any()


def test_image_rows_take_the_place_of_embeddings(values: torch.Tensor) -> None:
    image_TD = torch.ones(3, WIDTH)
    found = embed(
        plain(values),
        torch.tensor([4, ROWS + 2, 5]),
        torch.float32,
        image_T=torch.tensor([False, True, False]),
        embedding_TD=image_TD,
    )
    assert torch.equal(found, torch.stack((values[4], image_TD[1], values[5])))


@pytest.mark.parametrize("form", ["mxfp8", "mxfp4", "fp4_e4m3x16", "bfloat16", "float32"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_gathered_rows_are_the_rows_of_the_widened_table(
    values: torch.Tensor, form: str, dtype: torch.dtype
) -> None:
    table = quantise(values, form)
    index = torch.tensor([[3, 0], [8, 3]])
    assert torch.equal(gather_rows(table, index, dtype), table.dequantise(dtype)[index])


def test_no_row_is_a_valid_request(values: torch.Tensor) -> None:
    index = torch.zeros((0, 2), dtype=torch.int64)
    assert gather_rows(plain(values), index, torch.float32).shape == (0, 2, WIDTH)
