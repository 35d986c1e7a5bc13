"""Threads of a block: their own memory, warps, and warp groups that wait for each other."""

from typing import Any

import pytest
import tilelang.language as T
import torch
from deepinfer_core.testing.tiles import BarrierStall, UnwrittenRead, interpret


def test_every_thread_has_its_own_array() -> None:
    @T.prim_func
    def kernel(x: T.Tensor((64, 4), "float32"), out: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as _:
            thread = T.get_thread_binding()
            own = T.alloc_local((4,), "float32")
            for k in T.vectorized(4):
                own[k] = x[thread, k]
            for k in T.unroll(3):
                own[0] = own[0] * 10 + own[k + 1]
            out[thread] = own[0] + own[thread % 4] * 0

    x = torch.arange(256).remainder(10).float().reshape(64, 4)
    out = torch.zeros(64)
    interpret(kernel, {"x": x, "out": out})
    assert torch.equal(out, x @ torch.tensor([1000.0, 100.0, 10.0, 1.0]))


def test_a_thread_copies_its_own_piece() -> None:
    @T.prim_func
    def kernel(x: T.Tensor((100,), "uint8"), out: T.Tensor((100,), "uint8")):
        with T.Kernel(1, threads=32) as _:
            thread = T.get_thread_binding()
            own = T.alloc_local((4,), "uint8")
            T.copy(x[thread * 4 : thread * 4 + 4], own)
            T.copy(own, out[thread * 4 : thread * 4 + 4])

    x, out = torch.arange(100, dtype=torch.uint8), torch.zeros(100, dtype=torch.uint8)
    interpret(kernel, {"x": x, "out": out})
    assert torch.equal(out, x)


def test_a_thread_that_did_not_store_cannot_read() -> None:
    def kernel_with(readers: int) -> Any:
        @T.prim_func
        def kernel(out: T.Tensor((32,), "int32")):
            with T.Kernel(1, threads=32) as _:
                thread = T.get_thread_binding()
                own = T.alloc_local((1,), "int32")
                if thread < 7:
                    own[0] = thread
                if thread < readers:
                    out[thread] = own[0]

        return kernel

    out = torch.full((32,), -77, dtype=torch.int32)
    interpret(kernel_with(7), {"out": out})
    assert out.tolist() == [*range(7), *[-77] * 25]
    with pytest.raises(UnwrittenRead, match="own"):
        interpret(kernel_with(8), {"out": out})


def shuffled(compute: Any) -> torch.Tensor:
    @T.prim_func
    def kernel(x: T.Tensor((64,), "int32"), out: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64) as _:
            thread = T.get_thread_binding()
            own = T.alloc_var("int32", 0)
            own = x[thread]
            out[thread] = compute(own)

    x, out = torch.arange(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    interpret(kernel, {"x": x, "out": out})
    return out.reshape(2, 32)


LANES = torch.arange(32)


def test_shuffles_move_values_inside_a_warp() -> None:
    base = torch.tensor([[0], [32]])
    assert torch.equal(shuffled(lambda v: T.shfl_xor(v, 5)), (base + (LANES ^ 5)).int())
    down = torch.where(LANES + 3 < 32, LANES + 3, LANES)
    assert torch.equal(shuffled(lambda v: T.shfl_down(v, 3)), (base + down).int())
    up = torch.where(LANES >= 3, LANES - 3, LANES)
    assert torch.equal(shuffled(lambda v: T.shfl_up(v, 3)), (base + up).int())
    assert torch.equal(shuffled(lambda v: T.shfl_sync(v, 9)), (base + 9).expand(2, 32).int())


def test_warp_reductions_give_every_lane_the_result() -> None:
    per_warp = torch.arange(64, dtype=torch.int32).reshape(2, 32)
    total = per_warp.sum(1, keepdim=True).expand(2, 32).int()
    assert torch.equal(shuffled(T.warp_reduce_sum), total)
    assert torch.equal(shuffled(T.warp_reduce_max), per_warp[:, 31:].expand(2, 32))
    assert torch.equal(shuffled(T.warp_reduce_min), per_warp[:, :1].expand(2, 32))


def grouped_product(fault: str = "") -> Any:
    stages, steps = 2, 6

    @T.prim_func
    def kernel(
        x: T.Tensor((16, 96), "float16"),
        w: T.Tensor((16, 96), "float16"),
        out: T.Tensor((16, 16), "float32"),
    ):
        with T.Kernel(1, threads=256) as _:
            a = T.alloc_shared((stages, 16, 16), "float16")
            b = T.alloc_shared((stages, 16, 16), "float16")
            total = T.alloc_fragment((16, 16), "float32")
            full, empty = T.alloc_barrier([128] * stages), T.alloc_barrier([128] * stages)
            turns = T.alloc_var("int32", 0)
            with T.ws(1):
                for k in T.serial(steps):
                    if fault != "no wait":
                        T.mbarrier_wait_parity(empty[k % stages], (k // stages) % 2 ^ 1)
                    T.copy(x[0:16, k * 16 : k * 16 + 16], a[k % stages, :, :])
                    T.copy(w[0:16, k * 16 : k * 16 + 16], b[k % stages, :, :])
                    if fault != "no arrival":
                        T.mbarrier_arrive(full[k % stages])
            with T.ws(0):
                T.clear(total)
                for k in T.serial(steps):
                    if fault != "early read":
                        T.mbarrier_wait_parity(full[k % stages], (k // stages) % 2)
                    T.gemm(a[k % stages, :, :], b[k % stages, :, :], total, transpose_B=True)
                    turns = turns + 1
                    T.mbarrier_arrive(empty[k % stages])
                for i, j in T.Parallel(16, 16):
                    out[i, j] = total[i, j] * T.cast(turns, "float32")

    return kernel


def product_inputs(normal: Any) -> dict[str, torch.Tensor]:
    half = torch.float16
    return {"x": normal(16, 96).to(half), "w": normal(16, 96).to(half), "out": torch.zeros(16, 16)}


def test_warp_groups_wait_for_each_other(normal: Any) -> None:
    tensors = product_inputs(normal)
    interpret(grouped_product(), tensors)
    expected = tensors["x"].double() @ tensors["w"].double().T * 6
    # 96 products below 16 in magnitude, added in float32 and multiplied by 6.
    torch.testing.assert_close(tensors["out"].double(), expected, rtol=0, atol=96 * 96 * 2**-20)


@pytest.mark.parametrize("fault", ["no wait", "no arrival"])
def test_warp_groups_that_cannot_go_on_are_reported(fault: str, normal: Any) -> None:
    with pytest.raises(BarrierStall):
        interpret(grouped_product(fault), product_inputs(normal))


def test_a_tile_that_is_read_too_early_is_unwritten(normal: Any) -> None:
    tensors = product_inputs(normal)
    try:
        interpret(grouped_product("early read"), tensors)
    except (BarrierStall, UnwrittenRead):
        return
    expected = tensors["x"].double() @ tensors["w"].double().T * 6
    assert (tensors["out"] - expected).abs().max() > 1e-2


def test_threads_of_a_warp_group_keep_their_numbers_and_their_own_values() -> None:
    @T.prim_func
    def kernel(x: T.Tensor((256,), "int32"), out: T.Tensor((256,), "int32")):
        with T.Kernel(1, threads=256) as _:
            thread = T.get_thread_binding()
            own = T.alloc_var("int32", 0)
            own = x[thread]
            with T.ws(1):
                own = own + 1000
                out[thread] = own + thread // 128
            with T.ws(0):
                out[thread] = own
            if thread % 128 == 5:
                out[thread] = own

    x = torch.arange(256, dtype=torch.int32) * 3
    out = torch.full((256,), -77, dtype=torch.int32)
    interpret(kernel, {"x": x, "out": out})
    expected = x + torch.where(torch.arange(256) < 128, 0, 1001).int()
    expected[133] = x[133] + 1000
    assert torch.equal(out, expected)


def test_a_condition_on_threads_does_not_divide_a_parallel_loop() -> None:
    @T.prim_func
    def kernel(count: T.Tensor((1,), "int32"), out: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=64) as _:
            if T.get_thread_binding() < 32:
                for i in T.Parallel(8):
                    T.atomic_add(count[0], 1)
                    out[i] = i

    count, out = torch.zeros(1, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    interpret(kernel, {"count": count, "out": out})
    assert count.item() == 8
    assert out.tolist() == list(range(8))


def test_a_wait_that_nobody_answers_is_reported() -> None:
    @T.prim_func
    def kernel(out: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=128) as _:
            ready = T.alloc_barrier(128)
            T.mbarrier_wait_parity(ready[0], 0)
            out[0] = 1

    with pytest.raises(BarrierStall):
        interpret(kernel, {"out": torch.zeros(1, dtype=torch.int32)})
