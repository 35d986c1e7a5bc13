"""Expressions: number formats, operations and their rounding."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tilelang.language as T
import torch
from deepinfer_core.testing.tiles import UnknownTileOperation, interpret, register_function

COUNT = 8


def elementwise(compute: Callable[[Any], Any], source: str, target: str) -> Any:
    @T.prim_func
    def kernel(x: T.Tensor((COUNT,), source), out: T.Tensor((COUNT,), target)):
        with T.Kernel(1, threads=32) as _:
            for i in T.Parallel(COUNT):
                out[i] = compute(x[i])

    return kernel


def evaluate(compute: Callable[[Any], Any], x: torch.Tensor, target: torch.dtype) -> torch.Tensor:
    names = [str(dtype).removeprefix("torch.") for dtype in (x.dtype, target)]
    out = torch.zeros(COUNT, dtype=torch.uint8).repeat_interleave(target.itemsize).view(target)
    interpret(elementwise(compute, *names), {"x": x, "out": out})
    return out


def eight(*values: float) -> torch.Tensor:
    return torch.tensor([*values, *[0.0] * (COUNT - len(values))])


def test_a_cast_to_e4m3_rounds_to_even_and_saturates_at_448() -> None:
    x = eight(17.0, 18.5, 449.0, 1e9, -math.inf, 2**-10, math.nan)
    out = evaluate(lambda v: T.cast(v, "float8_e4m3fn"), x, torch.float8_e4m3fn).float()
    # 2^-10 is half of the smallest number, 2^-9: the tie goes to the even neighbour, zero.
    assert out[:6].tolist() == [16.0, 18.0, 448.0, 448.0, -448.0, 0.0]
    assert out[6].isnan()


def test_a_cast_to_e5m2_saturates_at_57344() -> None:
    x = eight(1e9, -1e9, 1.0, math.inf)
    out = evaluate(lambda v: T.cast(v, "float8_e5m2"), x, torch.float8_e5m2).float()
    assert out[:4].tolist() == [57344.0, -57344.0, 1.0, 57344.0]


def test_a_cast_to_e8m0_rounds_upwards_to_a_power_of_two() -> None:
    x = eight(1.0, 1.0001, 3.0, 4.0, 2.0**-127, 3e38, 0.0, math.nan)
    out = evaluate(lambda v: T.cast(v, "float8_e8m0fnu"), x, torch.float8_e8m0fnu)
    assert out.view(torch.uint8).tolist() == [127, 128, 129, 129, 0, 254, 0, 255]


def test_a_cast_to_bfloat16_rounds_to_even() -> None:
    x = eight(1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20)
    out = evaluate(lambda v: T.cast(v, "bfloat16"), x, torch.bfloat16).float()
    assert out[:3].tolist() == [1.0, 1 + 2**-6, 1 + 2**-7]


def test_a_cast_to_an_integer_truncates_and_saturates() -> None:
    x = eight(1.9, -1.9, 3e9, -3e9, math.nan)
    out = evaluate(lambda v: T.cast(v, "int32"), x, torch.int32)
    assert out[:5].tolist() == [1, -1, 2**31 - 1, -(2**31), 0]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "bfloat16"])
def test_widening_a_narrow_format_is_exact(name: str) -> None:
    dtype = getattr(torch, name)
    x = torch.tensor([0, 1, 7, 8, 60, 100, 126, 200], dtype=torch.uint8)
    x = x.repeat_interleave(dtype.itemsize).view(dtype)
    out = evaluate(lambda v: T.cast(v, "float32"), x, torch.float32)
    torch.testing.assert_close(out, x.float(), rtol=0, atol=0, equal_nan=True)


def test_four_bit_floats_round_and_saturate_at_six() -> None:
    def through(v: Any) -> Any:
        return T.cast(T.cast(v, "float4_e2m1fn"), "float32")

    out = evaluate(through, eight(0.2, 0.3, 1.75, 2.5, 5.0, 7.0, -9.0, math.nan), torch.float32)
    # Ties go to the even mantissa: 1.75 to 2, 2.5 to 2, 5 to 4; NaN saturates as on the device.
    assert out.tolist() == [0.0, 0.5, 2.0, 2.0, 4.0, 6.0, -6.0, 6.0]


def test_reinterpret_keeps_the_bits() -> None:
    x = eight(1.0, -0.0, 3.5)
    out = evaluate(lambda v: T.reinterpret(v, "int32"), x, torch.int32)
    assert torch.equal(out, x.view(torch.int32))


def test_two_halves_are_packed_into_a_word_and_taken_out_again() -> None:
    x = torch.tensor([0x3F80_4000, 1, 0, 0x4040_3F80, 0, 0, 0, 0], dtype=torch.int64)
    x = x.to(torch.int32)

    def doubled(v: Any) -> Any:
        pair = T.reinterpret(T.cast(v, "uint32"), "bfloat16x2")
        return T.reinterpret(T.add2(pair, pair), "uint32")

    out = evaluate(lambda v: T.cast(doubled(v), "int32"), x, torch.int32)
    pairs = out.view(torch.bfloat16).float()
    assert torch.equal(pairs, (x.view(torch.bfloat16) * 2).float())


UNARY = {
    "exp": torch.exp, "exp2": torch.exp2, "log": torch.log, "log2": torch.log2,
    "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
    "abs": torch.abs, "floor": torch.floor, "ceil": torch.ceil, "round": torch.round,
    "sin": torch.sin, "cos": torch.cos, "erf": torch.erf,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(UNARY))
def test_a_unary_operation_is_that_of_torch(name: str) -> None:
    x = torch.tensor([0.1, 0.5, 1.0, 1.5, 2.5, 3.3, 7.0, 9.9])
    out = evaluate(getattr(T, name), x, torch.float32)
    # Two libraries round these differently by at most 2 units in the last place, 2^-23 each.
    torch.testing.assert_close(out, UNARY[name](x), rtol=2**-22, atol=2**-24)


def test_half_width_arithmetic_rounds_once_an_operation(normal: Callable[..., Any]) -> None:
    x = normal(COUNT).bfloat16()
    three = torch.tensor(3.0, dtype=torch.bfloat16)
    out = evaluate(lambda v: v * T.cast(3.0, "bfloat16") + v, x, torch.bfloat16)
    assert torch.equal(out, x * three + x)


def test_integer_division_floors_or_truncates_as_the_operation_says() -> None:
    x = torch.tensor([-7, -1, 0, 7, 8, -8, 5, -5], dtype=torch.int32)
    floored = evaluate(lambda v: v // 4 * 10 + v % 4, x, torch.int32)
    truncated = evaluate(lambda v: T.truncdiv(v, 4) * 10 + T.truncmod(v, 4), x, torch.int32)
    assert floored.tolist() == [int(v) // 4 * 10 + int(v) % 4 for v in x]
    assert truncated.tolist() == [int(int(v) / 4) * 10 + int(math.fmod(v, 4)) for v in x]


def test_integers_wrap_at_their_width() -> None:
    x = torch.tensor([2**31 - 1, 1, 0, -(2**31), 5, 6, 7, 8], dtype=torch.int32)
    out = evaluate(lambda v: v * 3 + 1, x, torch.int32)
    assert torch.equal(out, x * 3 + 1)


def test_uniform_integers_wrap_as_lanes_do() -> None:
    @T.prim_func
    def kernel(x: T.Tensor((1,), "int32"), out: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=32) as _:
            out[0] = x[0] * 65536 * 65535 + 7

    x, out = torch.tensor([3], dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    interpret(kernel, {"x": x, "out": out})
    assert out.item() == (3 * 65536 * 65535 + 7 + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize("value", [-9, -8, -1, 0, 1, 8, 9])
def test_uniform_integers_divide_as_lanes_do(value: int) -> None:
    @T.prim_func
    def kernel(x: T.Tensor((1,), "int32"), out: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=32) as _:
            out[0] = x[0] // 4
            out[1] = x[0] % 4
            out[2] = T.truncdiv(x[0], 4)
            out[3] = T.truncmod(x[0], 4)

    x, out = torch.tensor([value], dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    interpret(kernel, {"x": x, "out": out})
    assert out.tolist() == [value // 4, value % 4, int(value / 4), int(math.fmod(value, 4))]


def test_shifts_and_masks_work_on_bits() -> None:
    x = torch.tensor([1, 2, 255, 256, 1000, 7, 0, 65535], dtype=torch.int32)

    def mixed(v: Any) -> Any:
        return ((v << 3) ^ (v >> 1)) & T.int32(0xFFF) | 1

    out = evaluate(mixed, x, torch.int32)
    assert torch.equal(out, ((x << 3) ^ (x >> 1)) & 0xFFF | 1)


def test_minimum_and_maximum_ignore_nan_and_clamp_keeps_it() -> None:
    x = eight(math.nan, 5.0, -5.0)
    best = evaluate(lambda v: T.max(T.min(v, 2.0), -2.0), x, torch.float32)
    kept = evaluate(lambda v: T.clamp(v, -2.0, 2.0), x, torch.float32)
    assert best[:3].tolist() == [2.0, 2.0, -2.0]
    assert kept[0].isnan()
    assert kept[1:3].tolist() == [2.0, -2.0]


def test_a_device_function_without_a_twin_is_named() -> None:
    kernel = elementwise(
        lambda v: T.call_extern("float32", "mystery_of_the_device", v), *["float32"] * 2
    )
    with pytest.raises(UnknownTileOperation, match="mystery_of_the_device"):
        interpret(kernel, {"x": torch.zeros(COUNT), "out": torch.zeros(COUNT)})


def test_a_registered_function_stands_for_a_device_function() -> None:
    @register_function("halved_by_the_device")
    def halved(x: Any) -> Any:
        return np.float32(0.5) * x

    x = eight(3.0, 5.0)
    out = evaluate(lambda v: T.call_extern("float32", "halved_by_the_device", v), x, torch.float32)
    assert torch.equal(out, x / 2)
