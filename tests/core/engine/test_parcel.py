"""Do arrays of all kinds arrive as they were packed, in one buffer?"""

import numpy as np
import pytest
import torch
from deepinfer_core.engine.parcel import Parcel
from deepinfer_core.reference.device import CpuDevice

CPU = CpuDevice()

ARRAYS = [
    np.arange(5),
    np.array([[1.5, -2.0, 3.25]], dtype=np.float32),
    np.array([[1, -2], [3, 4]]),
    np.array([-1, 7, 9], dtype=np.int32),
    np.zeros((2, 0), dtype=np.float32),
    np.zeros((3, 0), dtype=np.int64),
    np.array([[0.5], [1.0]], dtype=np.float32),
]


def test_every_array_arrives_with_its_shape_dtype_and_numbers() -> None:
    arrived = Parcel(ARRAYS, CPU).arrive()
    for array, tensor in zip(ARRAYS, arrived, strict=True):
        assert tuple(tensor.shape) == array.shape
        assert tensor.dtype == torch.from_numpy(array).dtype
        assert tensor.tolist() == array.tolist()


@pytest.mark.parametrize("count", range(5))
def test_numbers_of_half_a_word_leave_their_neighbours_alone(count: int) -> None:
    halves = np.arange(count, dtype=np.int32) - 2
    before, got, behind = Parcel([np.array([-1]), halves, np.array([-1])], CPU).arrive()
    assert (before.tolist(), got.tolist(), behind.tolist()) == ([-1], halves.tolist(), [-1])


def test_all_arrays_lie_in_one_tensor() -> None:
    parcel = Parcel(ARRAYS, CPU)
    words = parcel.move()
    assert words.dtype == torch.int64
    for tensor in parcel.split(words):
        assert tensor.untyped_storage().data_ptr() == words.untyped_storage().data_ptr()


def test_an_equal_parcel_reads_the_words_of_another() -> None:
    first, second = (Parcel([np.arange(3) + n, np.float32([n])], CPU) for n in (0, 10))
    numbers, single = first.split(second.move())
    assert (numbers.tolist(), single.tolist()) == ([10, 11, 12], [10.0])


def test_an_array_that_is_not_contiguous_arrives_whole() -> None:
    table = np.arange(6, dtype=np.float32).reshape(2, 3).T
    [arrived] = Parcel([table], CPU).arrive()
    assert arrived.tolist() == table.tolist()
