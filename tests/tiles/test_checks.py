"""Checks: what a kernel must not do is reported with the buffer's name; what is masked is not."""

from typing import Any

import pytest
import tilelang.language as T
import torch
from deepinfer_core.testing.tiles import (
    ConflictingLanes,
    DoubledStore,
    IndexOutOfRange,
    Program,
    UnwrittenRead,
    interpret,
)


def run(kernel: Any, size: int = 8) -> torch.Tensor:
    x, out = torch.arange(1.0, size + 1), torch.full((size,), -77.0)
    interpret(kernel, {"x": x, "out": out})
    return out


def moved(shift: int, guarded: bool, count: int = 8) -> Any:
    @T.prim_func
    def kernel(x: T.Tensor((8,), "float32"), out: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _:
            for i in T.Parallel(count):
                if guarded:
                    if i + shift >= 0 and i + shift < 8 and i < 8:
                        out[i] = x[i + shift]
                else:
                    out[i] = x[i + shift]

    return kernel


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_load_outside_names_buffer_index_and_extent(shift: int) -> None:
    index = -1 if shift < 0 else 8
    with pytest.raises(IndexOutOfRange, match=rf"index {index} of dimension 0 of 'x' \[8\]"):
        run(moved(shift, guarded=False))


def test_a_store_outside_is_reported() -> None:
    with pytest.raises(IndexOutOfRange, match=r"index 8 of dimension 0 of 'x'|of 'out'"):
        run(moved(0, guarded=False, count=9))


@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_a_masked_lane_may_be_outside(shift: int) -> None:
    out = run(moved(shift, guarded=True, count=12))
    expected = [float(i + shift + 1) if 0 <= i + shift < 8 else -77.0 for i in range(8)]
    assert out.tolist() == expected


def test_a_uniform_index_is_checked_too() -> None:
    @T.prim_func
    def kernel(x: T.Tensor((8,), "float32"), out: T.Tensor((8,), "float32")):
        with T.Kernel(2, threads=32) as block:
            out[0] = x[block * 8]

    with pytest.raises(IndexOutOfRange, match="index 8"):
        run(kernel)


def test_an_on_chip_tile_operation_must_stay_inside() -> None:
    @T.prim_func
    def kernel(x: T.Tensor((8,), "float32"), out: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _:
            tile = T.alloc_shared((2, 8), "float32")
            for k in T.serial(3):
                T.copy(x, tile[k, 0:8])
            T.copy(tile[0, 0:8], out)

    with pytest.raises(IndexOutOfRange, match="'tile'"):
        run(kernel)


def partly_written(scope: str, cells: int, dtype: str, read_by: str) -> Any:
    @T.prim_func
    def kernel(x: T.Tensor((8,), "float32"), out: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _:
            tile = getattr(T, scope)((8,), dtype)
            total = T.alloc_fragment((1,), dtype)
            for i in T.Parallel(cells):
                tile[i] = T.cast(x[i], dtype)
            if read_by == "lanes":
                for i in T.Parallel(8):
                    out[i] = T.cast(tile[i], "float32")
            if read_by == "copy":
                T.copy(tile, out)
            if read_by == "one cell":
                out[0] = T.cast(tile[7], "float32")
            if read_by == "gather":
                for i in T.Parallel(8):
                    out[i] = T.cast(tile[(i * 3) % 8], "float32")
            if read_by == "reduction":
                T.reduce_max(tile, total, dim=0)
                out[0] = T.cast(total[0], "float32")

    return kernel


@pytest.mark.parametrize("scope", ["alloc_shared", "alloc_fragment"])
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bfloat16"])
@pytest.mark.parametrize("reader", ["lanes", "copy", "one cell", "gather", "reduction"])
def test_a_cell_that_nobody_wrote_cannot_be_read(scope: str, dtype: str, reader: str) -> None:
    with pytest.raises(UnwrittenRead, match="tile"):
        run(partly_written(scope, 7, dtype, reader))
    run(partly_written(scope, 8, dtype, reader))


def test_an_accumulator_must_be_cleared() -> None:
    def kernel_with(clear: bool) -> Any:
        @T.prim_func
        def kernel(x: T.Tensor((16, 16), "float16"), out: T.Tensor((16, 16), "float32")):
            with T.Kernel(1, threads=32) as _:
                tile, total = (
                    T.alloc_shared((16, 16), "float16"),
                    T.alloc_fragment((16, 16), "float32"),
                )
                T.copy(x, tile)
                if clear:
                    T.clear(total)
                T.gemm(tile, tile, total)
                T.copy(total, out)

        return kernel

    tensors = {"x": torch.ones(16, 16, dtype=torch.float16), "out": torch.zeros(16, 16)}
    interpret(kernel_with(clear=True), tensors)
    assert (tensors["out"] == 16).all()
    with pytest.raises(UnwrittenRead, match="total"):
        interpret(kernel_with(clear=False), tensors)


def test_what_the_last_block_left_does_not_count_as_written() -> None:
    @T.prim_func
    def kernel(x: T.Tensor((8,), "float32"), out: T.Tensor((8,), "float32")):
        with T.Kernel(2, threads=32) as block:
            tile = T.alloc_shared((8,), "float32")
            if block == 0:
                T.copy(x, tile)
            T.copy(tile, out)

    with pytest.raises(UnwrittenRead):
        run(kernel)


def test_lanes_that_take_no_part_may_read_unwritten_cells() -> None:
    @T.prim_func
    def kernel(x: T.Tensor((8,), "float32"), out: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _:
            tile = T.alloc_shared((8,), "float32")
            for i in T.Parallel(8):
                if i < 4:
                    tile[i] = x[i]
            for i in T.Parallel(8):
                out[i] = T.if_then_else(i < 4, tile[i], 0.0)

    assert run(kernel).tolist() == [1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("where", ["window", "gather", "one cell"])
def test_disagreeing_lanes_may_not_share_a_cell(where: str) -> None:
    @T.prim_func
    def kernel(x: T.Tensor((8,), "float32"), out: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _:
            for i, j in T.Parallel(4, 2):
                if where == "window":
                    out[i + j] = x[i * 2 + j]
                if where == "gather":
                    out[(i * 2 + j) // 2] = x[i * 2 + j]
                if where == "one cell":
                    out[0] = x[i * 2 + j]

    with pytest.raises(ConflictingLanes, match="'out'"):
        run(kernel)


def test_agreeing_lanes_may_share_a_cell() -> None:
    @T.prim_func
    def kernel(x: T.Tensor((8,), "float32"), out: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _:
            for i, j in T.Parallel(4, 2):
                out[i] = x[i] + 0 * T.cast(j, "float32")

    assert run(kernel)[:4].tolist() == [1.0, 2.0, 3.0, 4.0]


def test_threads_of_a_block_may_not_disagree_either() -> None:
    @T.prim_func
    def kernel(x: T.Tensor((8,), "float32"), out: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _:
            out[0] = T.cast(T.get_thread_binding(), "float32")

    with pytest.raises(ConflictingLanes, match="'out'"):
        run(kernel)


def storing(who: str) -> Any:
    """One cell of shared memory and one of the output; ``who`` of 32 threads stores."""

    @T.prim_func
    def kernel(x: T.Tensor((8,), "float32"), out: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _:
            thread = T.get_thread_binding()
            kept = T.alloc_shared((1,), "float32")
            if who == "one" and thread == 5:
                kept[0] = x[1]
            if who == "some" and thread < 2:
                kept[0] = x[1]
            if who == "all":
                kept[0] = x[1]
            if who == "all, atomically":
                if thread == 0:
                    kept[0] = 0.0
                T.sync_threads()
                T.atomic_max(kept[0], x[1])
            T.sync_threads()
            if thread < 8:
                out[thread] = kept[0]

    return kernel


@pytest.mark.parametrize("who", ["one", "all, atomically"])
def test_one_lane_may_store_into_a_cell(who: str) -> None:
    x, out = torch.arange(1.0, 9), torch.full((8,), -77.0)
    Program(storing(who)).run({"x": x, "out": out}, refuse_doubled_stores=True)
    assert out.tolist() == [2.0] * 8


@pytest.mark.parametrize(("who", "count"), [("some", 2), ("all", 32)])
def test_several_lanes_may_if_nobody_minds(who: str, count: int) -> None:
    given = {"x": torch.arange(1.0, 9), "out": torch.full((8,), -77.0)}
    program = Program(storing(who))
    program.run(given)
    assert given["out"].tolist() == [2.0] * 8
    with pytest.raises(DoubledStore, match=f"{count} lanes .* store into 1 cells of 'kept'"):
        program.run(given, refuse_doubled_stores=True)


def test_lanes_of_a_parallel_loop_that_share_a_cell_are_refused_too() -> None:
    @T.prim_func
    def kernel(x: T.Tensor((8,), "float32"), out: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _:
            for i, j in T.Parallel(4, 2):
                out[i] = x[i] + T.min(T.cast(j, "float32"), 0.0)

    given = {"x": torch.arange(1.0, 9), "out": torch.full((8,), -77.0)}
    with pytest.raises(DoubledStore, match=r"8 lanes .* store into 4 cells of 'out'"):
        Program(kernel).run(given, refuse_doubled_stores=True)


def test_a_program_of_tiles_alone_is_one_lane_outside_its_loops() -> None:
    """Nobody says which threads perform it, and the compiler takes care of that."""

    @T.prim_func
    def kernel(x: T.Tensor((8,), "float32"), out: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as _:
            out[0] = x[3]

    given = {"x": torch.arange(1.0, 9), "out": torch.full((8,), -77.0)}
    Program(kernel).run(given, refuse_doubled_stores=True)
    assert given["out"][0] == 4.0


def test_a_value_that_lanes_of_a_parallel_loop_disagree_on_is_gone_after_it() -> None:
    def kernel_with(same: bool) -> Any:
        @T.prim_func
        def kernel(x: T.Tensor((8,), "float32"), out: T.Tensor((8,), "float32")):
            with T.Kernel(1, threads=32) as _:
                kept = T.alloc_local((1,), "float32")
                for i in T.Parallel(8):
                    kept[0] = x[0] if same else x[i]
                    out[i] = kept[0]
                out[0] = kept[0]

        return kernel

    assert run(kernel_with(same=True)).tolist() == [1.0] * 8
    with pytest.raises(UnwrittenRead, match="kept"):
        run(kernel_with(same=False))


def test_a_store_that_must_be_lone_evaluates_its_value_once() -> None:
    """An atomic operation in it changes memory each time."""

    @T.prim_func
    def kernel(out: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8) as _:
            counted = T.alloc_shared((1,), "int32")
            thread = T.get_thread_binding()
            if thread == 0:
                counted[0] = 0
            T.sync_threads()
            out[thread] = T.atomic_add(counted[0], 1, return_prev=True)

    out = torch.full((8,), -77, dtype=torch.int32)
    Program(kernel).run({"out": out}, refuse_doubled_stores=True)
    assert out.tolist() == [*range(8)]


@pytest.mark.parametrize("stored", [0, 3, 8])
def test_memory_of_a_lane_is_read_by_lanes_that_stored_it_only(stored: int) -> None:
    @T.prim_func
    def kernel(out: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8) as _:
            kept = T.alloc_local((1,), "float32")
            thread = T.get_thread_binding()
            if thread < stored:
                kept[0] = 1.0
            out[thread] = kept[0]

    out = torch.full((8,), -77.0)
    if stored == 8:
        Program(kernel).run({"out": out})
        assert out.tolist() == [1.0] * 8
        return
    with pytest.raises(UnwrittenRead, match=r"'kept' .* is read by a lane that did not store it"):
        Program(kernel).run({"out": out})
