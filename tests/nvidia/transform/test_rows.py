"""Which tensors do row-wise kernels get as they are, and which as copies?"""

import pytest
import torch
from deepinfer_core.errors import NotSupported
from deepinfer_nvidia.transform.rows import check, dtype_name, sliced, strided_rows


def test_a_slice_of_rows_is_the_same_memory() -> None:
    x_TD = torch.zeros(5, 192).bfloat16()[:, 64:128]
    rows_TD, stride = strided_rows(x_TD)
    assert rows_TD.data_ptr() == x_TD.data_ptr()
    assert stride == 192


def test_an_address_between_vectors_is_copied_to_one_that_is_not() -> None:
    x_TD = torch.arange(5 * 72).view(5, 72).bfloat16()[:, 1:65]
    assert x_TD.data_ptr() % 16
    rows_TD, stride = strided_rows(x_TD)
    assert rows_TD.data_ptr() % 16 == 0
    assert stride == 64
    assert bool((rows_TD == x_TD).all())


def test_a_single_row_has_the_distance_of_adjacent_rows() -> None:
    """So that one kernel serves single rows of slices of any length."""
    assert sliced(torch.zeros(9, 192)[3:4, 64:128]).stride() == (64, 1)
    assert sliced(torch.zeros(9, 4, 80)[3:4, :, 16:]).stride() == (320, 80, 1)


def test_leading_axes_count_as_rows() -> None:
    rows_TD, stride = strided_rows(torch.zeros(3, 4, 64))
    assert (rows_TD.shape, stride) == ((12, 64), 64)


def test_only_what_kernels_compute_with_has_a_name() -> None:
    assert dtype_name(torch.bfloat16) == "bfloat16"
    with pytest.raises(NotSupported, match="float16"):
        dtype_name(torch.float16)


def test_a_tensor_of_another_shape_is_refused() -> None:
    with pytest.raises(NotSupported, match=r"\(2, 3\)"):
        check(torch.zeros(3, 2), torch.float32, 2, 3)
