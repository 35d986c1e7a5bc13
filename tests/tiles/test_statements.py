"""Statements: lanes, masks, loops, bindings and views."""

from collections.abc import Callable
from typing import Any

import pytest
import tilelang.language as T
import torch
from deepinfer_core.testing.tiles import EndlessLoop, FailedAssertion, interpret

WIDTH = 64


def scaled_rows(tile: int) -> Any:
    rows, stride = T.dynamic("rows"), T.dynamic("stride", "int64")

    @T.prim_func
    def kernel(
        x_TD: T.StridedTensor((rows, WIDTH), (stride, 1), "float32"),
        out_TD: T.Tensor((rows, WIDTH), "float32"),
    ):
        with T.Kernel(T.ceildiv(rows, tile), threads=64) as block:
            for i, j in T.Parallel(tile, WIDTH):
                row = block * tile + i
                if row < rows:
                    out_TD[row, j] = x_TD[row, j] * T.cast(row + 1, "float32")

    return kernel


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9])
def test_a_dynamic_row_count_is_taken_from_the_arguments(
    rows: int, normal: Callable[..., torch.Tensor]
) -> None:
    x, out = normal(rows, WIDTH), torch.full((rows, WIDTH), torch.nan)
    interpret(scaled_rows(8), {"x_TD": x, "out_TD": out})
    assert torch.equal(out, x * torch.arange(1, rows + 1)[:, None])


def test_a_strided_argument_is_read_where_it_lies(normal: Callable[..., torch.Tensor]) -> None:
    wide = normal(5, 3 * WIDTH)
    x, out = wide[:, WIDTH : 2 * WIDTH], torch.full((5, WIDTH), torch.nan)
    interpret(scaled_rows(4), {"x_TD": x, "out_TD": out})
    assert torch.equal(out, x * torch.arange(1, 6)[:, None])


def test_all_lanes_read_before_any_lane_writes() -> None:
    @T.prim_func
    def kernel(x: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32) as _:
            for i in T.Parallel(8):
                x[i] = x[7 - i]

    x = torch.arange(8, dtype=torch.int32)
    interpret(kernel, {"x": x})
    assert x.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]


def test_a_lane_variable_may_occur_twice_in_an_index() -> None:
    @T.prim_func
    def kernel(x: T.Tensor((24,), "int32"), out: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32) as _:
            for i in T.Parallel(8):
                out[i * 3 - i * 2] = x[i * 2 + i + 1]

    x, out = torch.arange(24, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    interpret(kernel, {"x": x, "out": out})
    assert out.tolist() == [1, 4, 7, 10, 13, 16, 19, 22]


def test_a_condition_masks_loads_and_stores() -> None:
    @T.prim_func
    def kernel(
        index: T.Tensor((8,), "int64"), x: T.Tensor((4,), "float32"), out: T.Tensor((8,), "float32")
    ):
        with T.Kernel(1, threads=32) as _:
            for i in T.Parallel(8):
                if index[i] >= 0 and x[index[i]] > 0:
                    out[i] = x[index[i]]
                else:
                    out[i] = T.if_then_else(index[i] < 0, -1.0, x[index[i]] * 2)

    index = torch.tensor([-1, 0, 1, 2, 3, -5, 3, 0])
    x, out = torch.tensor([1.0, -2.0, 3.0, -4.0]), torch.full((8,), torch.nan)
    interpret(kernel, {"index": index, "x": x, "out": out})
    assert out.tolist() == [-1.0, 1.0, -4.0, 3.0, -8.0, -1.0, -8.0, 1.0]


def test_a_loop_whose_end_differs_between_lanes_stops_lane_by_lane() -> None:
    @T.prim_func
    def kernel(count: T.Tensor((8,), "int32"), out: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32) as _:
            for i in T.Parallel(8):
                out[i] = 0
                for k in T.serial(count[i]):
                    out[i] = out[i] + k + 1

    count = torch.tensor([0, 1, 2, 3, 0, 5, 1, 4], dtype=torch.int32)
    out = torch.full((8,), -77, dtype=torch.int32)
    interpret(kernel, {"count": count, "out": out})
    assert torch.equal(out, count * (count + 1) // 2)


def test_lanes_leave_a_while_loop_one_by_one() -> None:
    @T.prim_func
    def kernel(x: T.Tensor((32,), "int32"), out: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32) as _:
            thread = T.get_thread_binding()
            value = T.alloc_var("int32", 0)
            turns = T.alloc_var("int32", 0)
            value = x[thread]
            while value > 1:
                value = value // 2
                turns = turns + 1
            out[thread] = turns

    x = torch.arange(32, dtype=torch.int32)
    out = torch.full((32,), -77, dtype=torch.int32)
    interpret(kernel, {"x": x, "out": out})
    assert out.tolist() == [max(int(v).bit_length() - 1, 0) for v in x]


def test_a_break_ends_the_loop_for_the_lanes_that_reach_it() -> None:
    @T.prim_func
    def kernel(limit: T.Tensor((32,), "int32"), out: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32) as _:
            thread = T.get_thread_binding()
            total = T.alloc_var("int32", 0)
            for k in T.serial(10):
                if k == limit[thread]:
                    T.loop_break()
                total = total + 1
            out[thread] = total

    limit = torch.arange(32, dtype=torch.int32)
    out = torch.full((32,), -77, dtype=torch.int32)
    interpret(kernel, {"limit": limit, "out": out})
    assert torch.equal(out, limit.clamp_max(10))


def test_a_lane_that_left_a_loop_begins_no_further_turn() -> None:
    @T.prim_func
    def kernel(limit: T.Tensor((32,), "int32"), out: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32) as _:
            thread = T.get_thread_binding()
            total = T.alloc_var("int32", 0)
            for k in T.serial(10):
                total = total + 1
                if k >= limit[thread]:
                    T.loop_break()
            out[thread] = total

    limit = torch.arange(32, dtype=torch.int32)
    out = torch.full((32,), -77, dtype=torch.int32)
    interpret(kernel, {"limit": limit, "out": out})
    assert torch.equal(out, (limit + 1).clamp_max(10))


def test_a_break_of_all_lanes_ends_the_loop_and_no_outer_one() -> None:
    @T.prim_func
    def kernel(out: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=32) as _:
            count = T.alloc_var("int32", 0)
            for _i in T.serial(3):
                for j in T.serial(10):
                    if j == 2:
                        T.loop_break()
                    count = count + 1
            out[0] = count

    out = torch.zeros(1, dtype=torch.int32)
    interpret(kernel, {"out": out})
    assert out.item() == 6


def test_a_loop_without_end_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    from deepinfer_core.testing.tiles import loops

    @T.prim_func
    def kernel(out: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=32) as _:
            count = T.alloc_var("int32", 0)
            while count < 5:
                out[0] = count

    monkeypatch.setattr(loops, "MOST_TURNS", 100)
    with pytest.raises(EndlessLoop):
        interpret(kernel, {"out": torch.zeros(1, dtype=torch.int32)})


def test_persistent_and_pipelined_loops_visit_every_tile_once() -> None:
    @T.prim_func
    def kernel(out: T.Tensor((5, 3), "int32")):
        with T.Kernel(4, threads=32) as block:
            for m, n in T.Persistent([5, 3], 4, block):
                for k in T.Pipelined(2, num_stages=2):
                    out[m, n] = out[m, n] + k + 1

    out = torch.zeros(5, 3, dtype=torch.int32)
    interpret(kernel, {"out": out})
    assert (out == 3).all()


def test_a_reshaped_view_and_a_byte_view_share_their_memory() -> None:
    @T.prim_func
    def kernel(
        x: T.Tensor((8,), "float32"), out: T.Tensor((32,), "uint8"), sums: T.Tensor((2,), "float32")
    ):
        with T.Kernel(1, threads=32) as _:
            tile = T.alloc_shared((8,), "float32")
            pairs = T.reshape(tile, (2, 4))
            raw = T.view(tile, (32,), "uint8")
            part = T.alloc_fragment((2,), "float32")
            T.copy(x, tile)
            for i in T.Parallel(32):
                out[i] = raw[i]
            T.reduce_sum(pairs, part, dim=1)
            T.copy(part, sums)

    x, out, sums = torch.arange(8.0), torch.zeros(32, dtype=torch.uint8), torch.zeros(2)
    interpret(kernel, {"x": x, "out": out, "sums": sums})
    assert torch.equal(out, x.view(torch.uint8))
    assert sums.tolist() == [6.0, 22.0]


def test_a_binding_keeps_its_value_when_memory_changes() -> None:
    @T.prim_func
    def kernel(x: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _:
            for i in T.Parallel(8):
                before = x[i]
                x[i] = 0.0
                x[i] = before + 1.0

    x = torch.arange(8.0)
    interpret(kernel, {"x": x})
    assert x.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]


def test_an_assertion_of_the_kernel_is_checked() -> None:
    @T.prim_func
    def kernel(x: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32) as _:
            T.device_assert(x[0] > 3)

    interpret(kernel, {"x": torch.full((8,), 4, dtype=torch.int32)})
    with pytest.raises(FailedAssertion):
        interpret(kernel, {"x": torch.full((8,), 3, dtype=torch.int32)})


def test_slices_store_one_vector_an_iteration() -> None:
    @T.prim_func
    def kernel(x: T.Tensor((8,), "float32"), out: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _:
            for i in T.serial(2):
                out[i * 4 : i * 4 + 4] = x[4 - i * 4 : 8 - i * 4]

    x, out = torch.arange(8.0), torch.zeros(8)
    interpret(kernel, {"x": x, "out": out})
    assert out.tolist() == [4.0, 5.0, 6.0, 7.0, 0.0, 1.0, 2.0, 3.0]
