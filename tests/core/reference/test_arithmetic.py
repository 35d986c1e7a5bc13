"""Do the building blocks give a row the same bits at every place, and the right ones?"""

import math

import pytest
import torch
from deepinfer_core.reference.arithmetic import (
    ROW_TILE,
    accumulation_dtype,
    align_width,
    matrix_products,
    mean_square,
    row_product,
    row_sum,
    sigmoid,
    silu,
    softplus,
)
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.tolerance import assert_within, roundoff

WIDE = [torch.float32, torch.float64]
ROWS = 70


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_sums_are_kept_in_fp32_or_wider(dtype: torch.dtype, wide: torch.dtype):
    assert accumulation_dtype(dtype) == wide


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("width", [1, 15, 16, 17, 37, 64, 129, 512])
@pytest.mark.parametrize("outputs", [1, 5, 24, 33])
def test_a_product_row_has_the_same_bits_in_every_batch_and_place(
    dtype: torch.dtype, width: int, outputs: int, generator: torch.Generator
):
    x = torch.randn(ROWS, width, generator=generator, dtype=dtype)
    weight = torch.randn(outputs, width, generator=generator, dtype=dtype)
    together = row_product(x, weight)
    for rows in range(1, ROWS + 1):
        assert_same_bits(row_product(x[:rows], weight), together[:rows])
        assert_same_bits(row_product(x[ROWS - rows :], weight), together[ROWS - rows :])
    for place in range(ROW_TILE):
        assert_same_bits(row_product(x.roll(place, 0), weight), together.roll(place, 0))


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("outputs", [1, 13, 17, 256])
def test_a_product_row_has_the_same_bits_however_many_threads_share_the_work(
    dtype: torch.dtype, outputs: int, generator: torch.Generator
):
    x = torch.randn(17, 512, generator=generator, dtype=dtype)
    weight = torch.randn(outputs, 512, generator=generator, dtype=dtype)
    together = row_product(x, weight)
    for rows in (1, 7, 8, 9, 17):
        assert_same_bits(row_product(x[:rows], weight), together[:rows])


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("shape", [(4, 64, 32), (4, 16, 64), (1, 16, 256), (8, 512, 17)])
def test_a_pair_of_matrices_gives_the_same_bits_alone_and_among_others(
    dtype: torch.dtype, shape: tuple[int, int, int], generator: torch.Generator
):
    rows, width, columns = shape
    left = torch.randn(9, rows, width, generator=generator, dtype=dtype)
    # Transposed, as keys are: there the split among threads was seen to matter.
    right = torch.randn(9, columns, width, generator=generator, dtype=dtype).transpose(1, 2)
    together = matrix_products(left, right)
    for pair in range(9):
        one = slice(pair, pair + 1)
        assert_same_bits(matrix_products(left[one], right[one]), together[one])
    error = (width + 2) * roundoff(dtype) * left.double().abs() @ right.double().abs()
    if dtype == torch.float32:
        assert_within(together, left.double() @ right.double(), error)


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 17])
def test_a_product_matches_fp64(rows: int, generator: torch.Generator):
    x = torch.randn(rows, 37, generator=generator).to(torch.bfloat16)
    weight = torch.randn(5, 37, generator=generator)
    want = x.double() @ weight.double().t()
    # 37 products, in any order.
    error = 39 * roundoff(torch.float32) * (x.double().abs() @ weight.double().abs().t())
    assert_within(row_product(x, weight), want, error)


def test_a_strided_input_gives_the_bits_of_its_copy(generator: torch.Generator):
    x = torch.randn(9, 192, generator=generator)[:, 64:128]
    weight = torch.randn(24, 64, generator=generator)
    assert_same_bits(row_product(x, weight), row_product(x.contiguous(), weight))


@pytest.mark.parametrize(("width", "aligned"), [(15, 16), (16, 16), (17, 32), (32, 32)])
def test_widths_are_padded_to_whole_lines(width: int, aligned: int):
    padded = align_width(torch.ones(2, width))
    assert padded.shape == (2, aligned)
    assert padded.sum() == 2 * width


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("width", [1, 31, 20480, 32767, 32768, 32769, 129280])
def test_the_sum_of_a_row_has_the_same_bits_alone_and_among_others(
    dtype: torch.dtype, width: int, generator: torch.Generator
):
    x = torch.randn(3, width, generator=generator, dtype=dtype)
    together = row_sum(x)
    for row in range(3):
        assert_same_bits(row_sum(x[row : row + 1]), together[row : row + 1])
    want = torch.tensor([math.fsum(row) for row in x.tolist()], dtype=torch.float64)
    assert_within(together, want, width * roundoff(dtype) * x.double().abs().sum(-1))


@pytest.mark.parametrize("width", [1, 7, 64])
def test_the_mean_square_divides_by_the_width(width: int):
    assert_same_bits(mean_square(torch.full((2, 3, width), 3.0)), torch.full((2, 3), 9.0))


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("function", [sigmoid, silu, softplus])
def test_a_function_has_the_same_bits_at_every_place(function, dtype: torch.dtype, generator):
    x = 3 * torch.randn(257, generator=generator, dtype=dtype)
    alone = torch.cat([function(x[i : i + 1].clone()) for i in range(257)])
    for length in range(1, 258):
        assert_same_bits(function(x[:length].clone()), alone[:length])
    columns = torch.zeros(257, 24, dtype=dtype)
    columns[:, 3] = x
    assert_same_bits(function(columns[:, 3]), alone)


@pytest.mark.parametrize("dtype", WIDE)
def test_functions_match_exact_values_from_far_left_to_far_right(dtype: torch.dtype):
    x = torch.linspace(-60, 60, 241, dtype=dtype)
    exact = [1 / (1 + math.exp(-v)) for v in x.tolist()]
    plus = [max(v, 0) + math.log1p(math.exp(-abs(v))) for v in x.tolist()]
    want = torch.tensor([exact, plus], dtype=torch.float64)
    # An exponential of at most 60 u relative error, and four more roundings.
    bound = 64 * roundoff(dtype) * want.abs()
    assert_within(sigmoid(x), want[0], bound[0])
    assert_within(silu(x), want[0] * x.double(), bound[0] * x.double().abs())
    assert_within(softplus(x), want[1], bound[1])


@pytest.mark.parametrize("dtype", WIDE)
def test_functions_stay_finite_where_exponentials_overflow(dtype: torch.dtype):
    x = torch.tensor([-1e4, 1e4], dtype=dtype)
    assert sigmoid(x).tolist() == [0, 1]
    assert silu(x).tolist() == [0, 1e4]
    assert softplus(x).tolist() == [0, 1e4]
