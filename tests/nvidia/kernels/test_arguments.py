"""Which tensors do kernels get as they are, which as copies, and which not?"""

import pytest
import torch
from deepinfer_core.errors import NotSupported
from deepinfer_nvidia.kernels.arguments import (
    check,
    dense,
    dtype_name,
    shaped,
    sliced,
    strided_rows,
)


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


def test_a_tensor_that_does_not_fit_is_refused() -> None:
    """Another dtype, another shape, rows that lie apart, or an address off a vector."""
    x_TD = torch.zeros(4, 8)
    assert check(x_TD, torch.float32, 4, 8) is x_TD
    for wrong in (x_TD.double(), x_TD[:3], x_TD[:, :4], torch.zeros(33)[1:].view(4, 8)):
        with pytest.raises(NotSupported):
            check(wrong, torch.float32, 4, 8 if wrong.shape[1] == 8 else 4)
    with pytest.raises(NotSupported, match=r"\(4, 7\)"):
        check(x_TD, torch.float32, 4, 7)


def test_a_list_may_begin_between_vectors() -> None:
    """Its numbers are read one at a time."""
    list_T = torch.zeros(4, dtype=torch.int64)[1:]
    assert shaped(list_T, torch.int64, 3) is list_T
    with pytest.raises(NotSupported, match="8 bytes past it"):
        check(list_T, torch.int64, 3)
    with pytest.raises(NotSupported, match="int64"):
        shaped(list_T, torch.int32, 3)


def test_an_input_is_copied_only_if_it_must_be() -> None:
    """A slice of whole rows is taken as it is, a slice of channels is not."""
    x_TD = torch.randn(4, 8)
    assert dense(x_TD[1:]).data_ptr() == x_TD[1:].data_ptr()
    copy_TD = dense(x_TD[:, 2:6])
    assert copy_TD.is_contiguous()
    assert torch.equal(copy_TD, x_TD[:, 2:6])
