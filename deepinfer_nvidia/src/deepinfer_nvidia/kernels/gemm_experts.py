"""Products of rows, sorted by expert, with their expert's weights. Twin: ``reference.gemm``.

The grid has a place for every tile of rows that there can be; a block looks its expert and its rows
up in the running ends, which live on the device, and leaves if there are none. MXFP4 weights are
widened to bf16 (exact) on their way into the registers of the matrix instruction; rows are its
short side. K is walked from the start to the end, so a row's bits depend neither on other rows nor
on the tile.

With fp32 rows a lane owns outputs and walks K alone, as in ``gemm_small_f32``.
"""

from dataclasses import dataclass
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.gemm import GemmExpertsSpec

from deepinfer_nvidia.kernels.compiler_switches import NO_WARP_SPLIT
from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["Tuning", "build", "default_tuning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """How the work is cut.

    Attributes:
        rows: rows of an expert at once; 8 to 256.
        channels: output channels of a block; a multiple of 64.
        depth: inputs of a step; a multiple of 32.
        stages: steps that are loaded ahead.
        pass_configs: the split into copying and multiplying warps must stay off: TileLang 0.1.15
            then evaluates the ``if`` around the loop before the ends are read, without a word.
    """

    rows: int = 32
    channels: int = 64
    depth: int = 64
    stages: int = 2
    pass_configs: tuple[tuple[str, bool | int | str], ...] = NO_WARP_SPLIT


def default_tuning(spec: GemmExpertsSpec) -> Tuning:
    """For a few rows an expert."""
    return Tuning(rows=8, threads=64) if spec.x_dtype == "float32" else Tuning()


def build(spec: GemmExpertsSpec, tuning: Tuning) -> Any:
    """Any number of rows and any ends."""
    rows = T.dynamic("rows")
    experts, out_width, in_width = spec.experts, spec.out_width, spec.in_width
    multiply = _multiplier(spec, tuning, rows)
    x = T.Tensor((rows, in_width), spec.x_dtype)
    ends = T.Tensor((experts,), "int64")
    out = T.Tensor((rows, out_width), spec.out_dtype)

    def of_plain_weights() -> Any:
        @T.prim_func
        def gemm_experts(
            x_RK: x,
            weight_ENK: T.Tensor((experts, out_width, in_width), spec.weight_format),
            ends_E: ends,
            out_RN: out,
        ) -> None:
            multiply(x_RK, (weight_ENK,), ends_E, out_RN)

        return gemm_experts

    def of_packed_weights() -> Any:
        @T.prim_func
        def gemm_experts(
            x_RK: x,
            weight_ENC: T.Tensor((experts, out_width, in_width // 2), "uint8"),
            scale_ENG: T.Tensor((experts, out_width, in_width // 32), "uint8"),
            ends_E: ends,
            out_RN: out,
        ) -> None:
            multiply(x_RK, (weight_ENC, scale_ENG), ends_E, out_RN)

        return gemm_experts

    return of_packed_weights() if _is_packed(spec) else of_plain_weights()


def _is_packed(spec: GemmExpertsSpec) -> bool:
    return spec.weight_format == "mxfp4"


def _multiplier(spec: GemmExpertsSpec, tuning: Tuning, rows: Any) -> Any:
    """The whole of it; weights are values, or codes and scales."""
    find, store = _finder(spec, tuning), _writer(spec, tuning)
    if spec.x_dtype == "float32":
        walk = _lanes(spec, tuning)
    else:
        walk = (_packed_tiles if _is_packed(spec) else _plain_tiles)(spec, tuning)

    @T.macro
    def multiply(x_RK: T.Buffer, weights: Any, ends_E: T.Buffer, out_RN: T.Buffer) -> None:
        with T.Kernel(
            T.ceildiv(spec.out_width, tuning.channels),
            T.ceildiv(rows, tuning.rows) + spec.experts,
            threads=tuning.threads,
        ) as (across, place):
            let_next_start(rows)
            T.pdl_sync()
            tile = T.alloc_local((3,), "int32")
            total = T.alloc_fragment((tuning.channels, tuning.rows), "float32")
            find(ends_E, place, tile)
            if tile[2] > 0:
                T.clear(total)
                walk(x_RK, weights, total, across, tile)
                store(total, out_RN, across, tile)

    return multiply


def _plain_tiles(spec: GemmExpertsSpec, tuning: Tuning) -> Any:
    """Adds the products of a tile's rows with plain weights, on the tensor cores."""
    channels, depth = tuning.channels, tuning.depth

    @T.macro
    def walk(x_RK: T.Buffer, weights: Any, total: T.Buffer, across: Any, tile: T.Buffer) -> None:
        x = T.alloc_shared((tuning.rows, depth), "bfloat16")
        weight = T.alloc_shared((channels, depth), "bfloat16")
        for step in T.Pipelined(T.ceildiv(spec.in_width, depth), num_stages=tuning.stages):
            start = step * depth
            T.copy(x_RK[tile[1] : tile[1] + tuning.rows, start : start + depth], x)
            T.copy(
                weights[0][
                    tile[0], across * channels : (across + 1) * channels, start : start + depth
                ],
                weight,
            )
            T.gemm(weight, x, total, transpose_B=True)

    return walk


def _packed_tiles(spec: GemmExpertsSpec, tuning: Tuning) -> Any:
    """Adds the products of a tile's rows with MXFP4 weights, on the tensor cores."""
    channels, depth = tuning.channels, tuning.depth
    groups = spec.in_width // 32

    @T.macro
    def walk(x_RK: T.Buffer, weights: Any, total: T.Buffer, across: Any, tile: T.Buffer) -> None:
        x = T.alloc_shared((tuning.rows, depth), "bfloat16")
        pairs = T.alloc_shared((channels, depth // 2), "uint8")
        weight = T.alloc_fragment((channels, depth), "bfloat16")
        for step in T.Pipelined(T.ceildiv(spec.in_width, depth), num_stages=tuning.stages):
            start, byte, first = step * depth, step * (depth // 2), across * channels
            T.copy(x_RK[tile[1] : tile[1] + tuning.rows, start : start + depth], x)
            T.copy(weights[0][tile[0], first : first + channels, byte : byte + depth // 2], pairs)
            for i, j in T.Parallel(channels, depth):
                channel = T.min(first + i, spec.out_width - 1)
                scale = weights[1][tile[0], channel, T.min((start + j) // 32, groups - 1)]
                weight[i, j] = T.cast(_value(pairs[i, j // 2], j % 2, scale), "bfloat16")
            T.gemm(weight, x, total, transpose_B=True)

    return walk


def _lanes(spec: GemmExpertsSpec, tuning: Tuning) -> Any:
    """Adds the products of a tile's rows, one input after the other."""

    @T.macro
    def walk(x_RK: T.Buffer, weights: Any, total: T.Buffer, across: Any, tile: T.Buffer) -> None:
        for k in T.serial(spec.in_width):
            for i, j in T.Parallel(tuning.channels, tuning.rows):
                channel = T.min(across * tuning.channels + i, spec.out_width - 1)
                row = T.min(tile[1] + j, tile[2] - 1)
                total[i, j] = total[i, j] + x_RK[row, k] * _weight(weights, tile[0], channel, k)

    return walk


def _finder(spec: GemmExpertsSpec, tuning: Tuning) -> Any:
    """Writes expert, first row and end of a place's rows into ``tile``; an end of 0: no rows."""

    @T.macro
    def find(ends_E: T.Buffer, place: Any, tile: T.Buffer) -> None:
        before = T.alloc_local((1,), "int32")
        begin = T.alloc_local((1,), "int32")
        for i in T.serial(3):
            tile[i] = 0
        before[0] = 0
        begin[0] = 0
        for e in T.serial(spec.experts):
            end = T.cast(ends_E[e], "int32")
            tiles = (end - begin[0] + tuning.rows - 1) // tuning.rows
            if place >= before[0] and place < before[0] + tiles:
                tile[0] = e
                tile[1] = begin[0] + (place - before[0]) * tuning.rows
                tile[2] = end
            before[0] = before[0] + tiles
            begin[0] = end

    return find


def _writer(spec: GemmExpertsSpec, tuning: Tuning) -> Any:
    """Writes the sums of the rows that belong to the expert."""

    @T.macro
    def store(total: T.Buffer, out_RN: T.Buffer, across: Any, tile: T.Buffer) -> None:
        for i, j in T.Parallel(tuning.channels, tuning.rows):
            channel = across * tuning.channels + i
            if tile[1] + j < tile[2] and channel < spec.out_width:
                out_RN[tile[1] + j, channel] = T.cast(total[i, j], spec.out_dtype)

    return store


def _weight(weights: Any, expert: Any, channel: Any, k: Any) -> Any:
    """One weight in fp32."""
    if len(weights) == 1:
        return T.cast(weights[0][expert, channel, k], "float32")
    codes, scales = weights
    return _value(codes[expert, channel, k // 2], k % 2, scales[expert, channel, k // 32])


def _value(pair: Any, which: Any, scale: Any) -> Any:
    """One of two e2m1 codes of a byte times its ue8m0 scale, in fp32.

    The bits of a code, put where fp32 has sign, exponent and first mantissa bit, are its value
    times 2^-126. Scale byte 0 is 2^-127, a subnormal number.
    """
    code = T.cast(pair, "int32") >> (4 * which) & 15
    bits = (code >> 3 << 31) | ((code & 7) << 22)
    power = T.max(T.cast(scale, "int32") << 23, 1 << 22)
    tiny = T.reinterpret(bits, "float32")
    return tiny * T.float32(2.0**126) * T.reinterpret(power, "float32")
