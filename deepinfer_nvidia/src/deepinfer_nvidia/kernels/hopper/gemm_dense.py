"""Products of bf16 rows with bf16 weights on Hopper. Twin: ``kernels.gemm_dense``.

Hand-written CUDA (``gemm_dense.cuh``): persistent blocks in clusters that share what they read,
matrix instructions that are not waited for one by one, and results that are written while the next
tile is multiplied. With few channels, the blocks of a cluster divide K (``gemm_spread.cuh``).
"""

from math import gcd
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.catalogue import KernelLimits
from deepinfer_core.interfaces.operators.gemm import GemmDenseSpec

from deepinfer_nvidia.kernels.hopper.ring import SHARED_BYTES, Tuning, sources
from deepinfer_nvidia.kernels.hopper.spread import spread
from deepinfer_nvidia.kernels.hopper.tensor_map import matrix_map
from deepinfer_nvidia.kernels.tuning.table import entries

__all__ = ["LIMITS", "Tuning", "build", "default_tuning"]

_FILES = ("copies.cuh", "gemm_ring.cuh", "gemm_dense.cuh")


def _takes(spec: GemmDenseSpec) -> bool:
    """With groups a stage of 64 inputs must not reach into the inputs of the next group."""
    return spec.in_width % (64 if spec.groups > 1 else 8) == 0


LIMITS = KernelLimits(architectures=("sm_90a",), takes=_takes)


def default_tuning(_spec: GemmDenseSpec) -> Any:
    """The smallest tile; ``choice`` has what launches use for each number of rows."""
    return entries("hopper/gemm_dense")[0].tuning


def build(spec: GemmDenseSpec, tuning: Tuning) -> Any:
    """One kernel for any number of rows."""
    return spread(spec, tuning) if tuning.is_spread else _persistent(spec, tuning)


def _chunk(tuning: Tuning, number_bytes: int) -> int:
    """Channels whose results, of so many bytes each, fit beside the ring."""
    left = (SHARED_BYTES + 1024) // tuning.blocks_per_core - 1024 - tuning.ring_bytes
    pieces = [tuning.channels // n for n in range(1, 33) if tuning.channels % (8 * n) == 0]
    bytes_a_channel = tuning.groups * 64 * number_bytes
    return next((piece for piece in pieces if piece * bytes_a_channel <= left), 0)


def _persistent(spec: GemmDenseSpec, tuning: Tuning) -> Any:
    rows = T.dynamic("rows")
    groups, out_width, in_width = spec.groups, spec.out_width, spec.in_width
    out_type, number_bytes = {"float32": ("float", 4), "bfloat16": ("bfloat16_t", 2)}[
        spec.out_dtype
    ]
    # Rows of results that begin at no multiple of 16 bytes are beyond the copy engine.
    chunk = _chunk(tuning, number_bytes) if out_width * number_bytes % 16 == 0 else 0
    box = gcd(chunk, 128 // number_bytes, out_width if groups > 1 else 0)
    if box % 8:
        chunk = box = 0
    cluster = tuning.down * tuning.across
    head = (groups, out_width, in_width, tuning.parts, tuning.ring(out_width))
    numbers = (*head, tuning.band, chunk, box, out_type, tuning.registers)
    result_bytes = tuning.groups * 64 * chunk * number_bytes
    entry = f"""
namespace deepinfer_dense {{
__device__ __forceinline__ void gemm_dense_entry(uint8_t *shared, const CUtensorMap &x,
    const CUtensorMap &weight, const CUtensorMap &results, {out_type} *out, int rows) {{
  Dense<{", ".join(map(str, numbers))}> kernel{{
      {{(char *)shared + {result_bytes}}}, x, weight, results, out, rows}};
  kernel.run();
}}
}}
"""
    source = sources(*_FILES) + entry
    shared_bytes = tuning.ring_bytes + result_bytes
    blocks = tuning.cores * tuning.blocks_per_core // cluster * cluster

    # Registers are moved between warp groups, so the copying warp then gets a whole group.
    threads = 128 * tuning.groups + (128 if tuning.registers else 32)

    def map_of_rows(x_TGK: Any, rows: Any) -> Any:
        return matrix_map(x_TGK, rows, groups * in_width, tuning.row_box)

    def map_of_results(x_TGK: Any, out_TGN: Any, rows: Any) -> Any:
        if not chunk:
            return map_of_rows(x_TGK, rows)
        width, dtype = groups * out_width, spec.out_dtype
        return matrix_map(out_TGN, rows, width, 16, box_columns=box, dtype=dtype)

    @T.prim_func
    def gemm_dense(
        x_TGK: T.Tensor((rows, groups, in_width), "bfloat16"),
        weight_GNK: T.Tensor((groups, out_width, in_width), "bfloat16"),
        out_TGN: T.Tensor((rows, groups, out_width), spec.out_dtype),
    ) -> None:
        with T.Kernel(blocks, threads=threads, cluster_dims=cluster) as _:
            T.import_source(source)
            T.annotate_min_blocks_per_sm(tuning.blocks_per_core)
            shared = T.alloc_shared((shared_bytes,), "uint8", scope="shared.dyn")
            T.call_extern(
                "handle",
                "deepinfer_dense::gemm_dense_entry",
                T.address_of(shared[0]),
                map_of_rows(x_TGK, rows),
                matrix_map(weight_GNK, groups * out_width, in_width, tuning.channel_box(out_width)),
                map_of_results(x_TGK, out_TGN, rows),
                T.address_of(out_TGN[0, 0, 0]),
                rows,
            )

    return gemm_dense
