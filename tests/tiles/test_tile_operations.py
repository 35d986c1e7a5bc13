"""Operations on whole tiles: copies, products, reductions, scans, atomics and reducers."""

from collections.abc import Callable
from typing import Any

import pytest
import tilelang.language as T
import torch
from deepinfer_core.testing.tiles import UnknownTileOperation, interpret

Normal = Callable[..., torch.Tensor]


def shifted_copy(start: int, size: int) -> Any:
    @T.prim_func
    def kernel(
        x: T.Tensor((5, size), "float32"),
        out: T.Tensor((8, 8), "float32"),
        back: T.Tensor((5, size), "float32"),
    ):
        with T.Kernel(1, threads=32) as _:
            tile = T.alloc_shared((8, 8), "float32")
            T.copy(x[start, 4], tile)
            T.copy(tile, out)
            T.copy(tile, back[start, 4])

    return kernel


@pytest.mark.parametrize("start", [0, 4, 5])
@pytest.mark.parametrize("size", [4, 5, 11, 12, 13])
def test_a_copy_fills_with_zeros_and_writes_nothing_outside(
    start: int, size: int, normal: Normal
) -> None:
    x, out, back = normal(5, size), torch.full((8, 8), torch.nan), torch.full((5, size), -77.0)
    interpret(shifted_copy(start, size), {"x": x, "out": out, "back": back})
    part = x[start:, 4:12]
    expected, expected_back = torch.zeros(8, 8), torch.full((5, size), -77.0)
    expected[: part.shape[0], : part.shape[1]] = part
    expected_back[start:, 4:12] = part
    assert torch.equal(out, expected)
    assert torch.equal(back, expected_back)


def product(flip_a: bool, flip_b: bool, clear: bool, dtype: str) -> Any:
    shape_a, shape_b = ((16, 8) if flip_a else (8, 16)), ((4, 16) if flip_b else (16, 4))

    @T.prim_func
    def kernel(
        a: T.Tensor(shape_a, dtype), b: T.Tensor(shape_b, dtype), out: T.Tensor((8, 4), "float32")
    ):
        with T.Kernel(1, threads=32) as _:
            left, right = T.alloc_shared(shape_a, dtype), T.alloc_shared(shape_b, dtype)
            total = T.alloc_fragment((8, 4), "float32")
            T.copy(a, left)
            T.copy(b, right)
            T.fill(total, 3.0)
            T.gemm(left, right, total, transpose_A=flip_a, transpose_B=flip_b, clear_accum=clear)
            T.copy(total, out)

    return kernel


@pytest.mark.parametrize("flip_a", [False, True])
@pytest.mark.parametrize("flip_b", [False, True])
@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float32"])
def test_a_product_obeys_its_flags(
    flip_a: bool, flip_b: bool, clear: bool, name: str, normal: Normal
) -> None:
    dtype = getattr(torch, name)
    a = normal(*((16, 8) if flip_a else (8, 16))).to(dtype)
    b = normal(*((4, 16) if flip_b else (16, 4))).to(dtype)
    out = torch.full((8, 4), torch.nan)
    interpret(product(flip_a, flip_b, clear, name), {"a": a, "b": b, "out": out})
    left, right = a.double(), b.double()
    expected = (left.T if flip_a else left) @ (right.T if flip_b else right)
    # 16 products of magnitude below 10 added in float32: 16 * 160 * 2^-24 = 1.5e-4.
    torch.testing.assert_close(out.double(), expected + (0 if clear else 3), rtol=0, atol=2e-4)


REDUCTIONS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "reduce_sum": lambda x, dim: x.sum(dim),
    "reduce_abssum": lambda x, dim: x.abs().sum(dim),
    "reduce_max": lambda x, dim: x.amax(dim),
    "reduce_min": lambda x, dim: x.amin(dim),
    "reduce_absmax": lambda x, dim: x.abs().amax(dim),
}


def reduction(name: str, dim: int, options: dict[str, Any]) -> Any:
    count = (4, 8)[1 - dim]

    @T.prim_func
    def kernel(x: T.Tensor((4, 8), "float32"), out: T.Tensor((count,), "float32")):
        with T.Kernel(1, threads=32) as _:
            tile, total = T.alloc_fragment((4, 8), "float32"), T.alloc_fragment((count,), "float32")
            T.copy(x, tile)
            T.fill(total, 1.5)
            getattr(T, name)(tile, total, dim=dim, **options)
            T.copy(total, out)

    return kernel


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
@pytest.mark.parametrize("dim", [0, 1])
def test_a_reduction_runs_along_its_dimension(name: str, dim: int, generator: Any) -> None:
    # Small integers: sums are exact in any order.
    x = torch.randint(-20, 21, (4, 8), generator=generator).float()
    expected = REDUCTIONS[name](x, dim)
    out = torch.full(expected.shape, torch.nan)
    interpret(reduction(name, dim, {}), {"x": x, "out": out})
    assert torch.equal(out, expected)


@pytest.mark.parametrize("name", ["reduce_sum", "reduce_max", "reduce_min", "reduce_absmax"])
def test_a_reduction_without_clear_goes_on_from_the_result(name: str, generator: Any) -> None:
    x = torch.randint(-20, 21, (4, 8), generator=generator).float()
    with_start = torch.cat([x, torch.full((4, 1), 1.5)], 1)
    out = torch.full((4,), torch.nan)
    interpret(reduction(name, 1, {"clear": False}), {"x": x, "out": out})
    assert torch.equal(out, REDUCTIONS[name](with_start, 1))


def test_bitwise_reductions_combine_bits(generator: Any) -> None:
    @T.prim_func
    def kernel(x: T.Tensor((4, 8), "int32"), out: T.Tensor((3, 4), "int32")):
        with T.Kernel(1, threads=32) as _:
            tile = T.alloc_fragment((4, 8), "int32")
            both, any_, odd = (T.alloc_fragment((4,), "int32") for _ in range(3))
            T.copy(x, tile)
            T.reduce_bitand(tile, both, dim=1)
            T.reduce_bitor(tile, any_, dim=1)
            T.reduce_bitxor(tile, odd, dim=1)
            T.copy(both, out[0, 0:4])
            T.copy(any_, out[1, 0:4])
            T.copy(odd, out[2, 0:4])

    x = torch.randint(0, 2**20, (4, 8), generator=generator, dtype=torch.int32)
    out = torch.zeros(3, 4, dtype=torch.int32)
    interpret(kernel, {"x": x, "out": out})
    bits = (x[..., None] >> torch.arange(20)) & 1
    for row, combined in enumerate([bits.amin(1), bits.amax(1), bits.sum(1) % 2]):
        assert torch.equal(out[row].long(), (combined << torch.arange(20)).sum(-1))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_a_running_sum_starts_at_either_end(reverse: bool, dim: int, generator: Any) -> None:
    @T.prim_func
    def kernel(x: T.Tensor((4, 8), "int32"), out: T.Tensor((4, 8), "int32")):
        with T.Kernel(1, threads=32) as _:
            tile = T.alloc_shared((4, 8), "int32")
            T.copy(x, tile)
            T.cumsum(tile, dim=dim, reverse=reverse)
            T.copy(tile, out)

    x = torch.randint(-9, 10, (4, 8), generator=generator, dtype=torch.int32)
    out = torch.zeros_like(x)
    interpret(kernel, {"x": x, "out": out})
    turned = x.flip(dim).cumsum(dim).flip(dim) if reverse else x.cumsum(dim)
    assert torch.equal(out, turned.int())


def test_every_iteration_contributes_once_to_a_reducer() -> None:
    @T.prim_func
    def kernel(
        x: T.Tensor((4, 8), "float32"),
        out: T.Tensor((4,), "float32"),
        most: T.Tensor((1,), "float32"),
    ):
        with T.Kernel(1, threads=32) as _:
            rows = T.alloc_reducer((4,), "float32", op="sum")
            top = T.alloc_reducer((1,), "float32", op="max")
            total, best = T.alloc_fragment((4,), "float32"), T.alloc_fragment((1,), "float32")
            T.reducer_init(rows, 100.0)
            T.reducer_init(top)
            for i, j in T.Parallel(4, 8):
                T.reducer_update(rows[i], 1.0)
                if j > 2:
                    T.reducer_update(top[0], x[i, j])
            T.finalize_reducer(rows, total)
            T.finalize_reducer(top, best)
            T.copy(total, out)
            T.copy(best, most)

    x = torch.arange(32.0).reshape(4, 8).neg()
    out, most = torch.zeros(4), torch.zeros(1)
    interpret(kernel, {"x": x, "out": out, "most": most})
    assert out.tolist() == [108.0] * 4
    assert most.item() == x[:, 3:].max().item()


def test_atomics_count_every_lane_and_return_what_they_found(generator: Any) -> None:
    @T.prim_func
    def kernel(
        x: T.Tensor((64,), "int32"),
        bins: T.Tensor((8,), "int32"),
        place: T.Tensor((64,), "int32"),
        ends: T.Tensor((2,), "int32"),
    ):
        with T.Kernel(2, threads=32) as block:
            thread = T.get_thread_binding()
            value = x[block * 32 + thread]
            place[block * 32 + thread] = T.atomic_add(bins[value], 1, return_prev=True)
            T.atomic_max(ends[0], value)
            if value > 3:
                T.atomic_min(ends[1], value)

    x = torch.randint(0, 8, (64,), generator=generator, dtype=torch.int32)
    bins, place = torch.zeros(8, dtype=torch.int32), torch.full((64,), -77, dtype=torch.int32)
    ends = torch.tensor([-1, 99], dtype=torch.int32)
    interpret(kernel, {"x": x, "bins": bins, "place": place, "ends": ends})
    assert torch.equal(bins, torch.bincount(x, minlength=8).int())
    assert sorted(zip(x.tolist(), place.tolist(), strict=True)) == [
        (value, n) for value in range(8) for n in range(int(bins[value]))
    ]
    assert ends.tolist() == [x.max().item(), x[x > 3].min().item()]


def test_an_atomic_outside_parallel_loops_is_done_by_every_thread() -> None:
    @T.prim_func
    def kernel(count: T.Tensor((1,), "int32")):
        with T.Kernel(3, threads=64) as _:
            T.atomic_add(count[0], 1)

    count = torch.zeros(1, dtype=torch.int32)
    interpret(kernel, {"count": count})
    assert count.item() == 3 * 64


def test_an_atomic_copy_adds_a_tile(normal: Normal) -> None:
    @T.prim_func
    def kernel(x: T.Tensor((4, 8), "float32"), out: T.Tensor((4, 8), "float32")):
        with T.Kernel(2, threads=32) as _:
            tile = T.alloc_shared((4, 8), "float32")
            T.copy(x, tile)
            T.atomic_add(out, tile)

    x, out = normal(4, 8), torch.ones(4, 8)
    interpret(kernel, {"x": x, "out": out})
    assert torch.equal(out, 1 + x + x)


def test_a_copy_between_different_shapes_is_refused() -> None:
    @T.prim_func
    def kernel(x: T.Tensor((4, 8), "float32"), out: T.Tensor((8, 4), "float32")):
        with T.Kernel(1, threads=32) as _:
            T.copy(x[0:4, 0:8], out[0:8, 0:4])

    with pytest.raises(UnknownTileOperation, match="extents"):
        interpret(kernel, {"x": torch.zeros(4, 8), "out": torch.zeros(8, 4)})
