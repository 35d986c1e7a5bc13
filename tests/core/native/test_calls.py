"""Do kernels get the arguments that Python gives, and is a call that cannot be right refused?"""

import pytest
import torch
from deepinfer_core.config.kernel_cache import kernel_cache_folder
from deepinfer_core.errors import DeviceError
from deepinfer_core.native.library import bind, open_library


def test_words_reach_the_kernel_as_addresses_whole_numbers_and_floats() -> None:
    norm = bind(open_library(kernel_cache_folder()), "di_rms_norm", "plllplfpl")
    x_D, weight_D, out_D = torch.tensor([3.0, 4.0]), torch.tensor([1.0, -2.0]), torch.empty(2)
    addresses = [tensor.data_ptr() for tensor in (x_D, weight_D, out_D)]
    assert norm(addresses[0], 1, 1, 2, addresses[1], 1, 12.5, addresses[2], 1) == 0
    # The mean of the squares is 12.5, and 12.5 + eps is 25.
    assert out_D.tolist() == pytest.approx([0.6, -1.6], rel=1e-6)


@pytest.mark.parametrize("missing", [-1, 1])
def test_another_number_of_arguments_is_refused(missing: int) -> None:
    norm = bind(open_library(kernel_cache_folder()), "di_rms_norm", "plllplfpl")
    with pytest.raises(TypeError, match="as many arguments"):
        norm(*[0] * (9 - missing))


@pytest.mark.parametrize("place", [0, 1, 6])
def test_what_is_no_number_is_refused(place: int) -> None:
    norm = bind(open_library(kernel_cache_folder()), "di_rms_norm", "plllplfpl")
    arguments: list[object] = [0] * 9
    arguments[place] = "a word"
    with pytest.raises(TypeError):
        norm(*arguments)


def test_none_is_the_null_address() -> None:
    norm = bind(open_library(kernel_cache_folder()), "di_rms_norm", "plllplfpl")
    assert norm(None, 1, 0, 2, None, 1, 0.0, None, 1) == 0


def test_a_code_other_than_success_names_the_kernel() -> None:
    dispatch = bind(open_library(kernel_cache_folder()), "di_exchange_dispatch", "pllllplplpppp")
    expert_Tk, number = torch.tensor([[7]]), torch.zeros(8)
    x, ints = number.data_ptr(), torch.zeros(8, dtype=torch.int64)
    at = ints.data_ptr()
    with pytest.raises(DeviceError, match="asked di_exchange_dispatch to run, found an index"):
        dispatch(expert_Tk.data_ptr(), 1, 1, 2, 1, x, 4, x, 1, x, x, at, at)
