"""Requests for memory ahead of its use: nothing shows, and what is asked for is there."""

from typing import Any

import pytest
import tilelang.language as T
import torch
from deepinfer_core.testing.tiles import IndexOutOfRange, UnknownTileOperation, interpret


def request(first: int, size: int, name: str = "deepinfer_bring_nearer", lines: int = 4) -> Any:
    """Each of the first ``lines`` threads asks for ``size`` bytes of its line of 16 numbers."""

    @T.prim_func
    def kernel(x: T.Tensor((4, 16), "bfloat16"), out: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=32) as _:
            thread = T.get_thread_binding()
            if thread < lines:
                T.call_extern("handle", name, T.address_of(x[thread, first]), size)
            if thread == 0:
                out[0] = 1.0

    return kernel


def asked(kernel: Any) -> float:
    out = torch.zeros(1)
    interpret(kernel, {"x": torch.zeros(4, 16, dtype=torch.bfloat16), "out": out})
    return out.item()


@pytest.mark.parametrize(("first", "size"), [(0, 32), (8, 16), (0, 16)])
def test_asking_for_what_is_there_changes_nothing(first: int, size: int) -> None:
    assert asked(request(first, size)) == 1.0


@pytest.mark.parametrize(("first", "size"), [(0, 48), (8, 32)])
def test_asking_beyond_a_line_is_a_fault(first: int, size: int) -> None:
    with pytest.raises(IndexOutOfRange, match="dimension 1 of 'x'"):
        asked(request(first, size))


def test_a_thread_beyond_the_last_line_is_a_fault() -> None:
    with pytest.raises(IndexOutOfRange, match="dimension 0 of 'x'"):
        asked(request(0, 16, lines=5))


@pytest.mark.parametrize(("first", "size"), [(4, 16), (0, 8)])
def test_addresses_and_lengths_are_multiples_of_16_bytes(first: int, size: int) -> None:
    with pytest.raises(IndexOutOfRange, match="at no multiple of 16 bytes"):
        asked(request(first, size))


def test_another_function_that_is_called_for_its_effect_is_unknown() -> None:
    with pytest.raises(UnknownTileOperation, match="do_something"):
        asked(request(0, 16, name="do_something"))
