"""Products of bf16 rows with bf16 weights on Hopper. Twin: ``kernels.gemm_dense``.

Hand-written CUDA (``gemm_dense.cuh``): persistent blocks in clusters that share what they read,
matrix instructions that are not waited for one by one, and results that are written while the next
tile is multiplied. With few channels, the blocks of a cluster divide K (``gemm_spread.cuh``).
"""

from dataclasses import dataclass
from functools import partial
from math import gcd
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.catalogue import KernelLimits
from deepinfer_core.interfaces.operators.gemm import GemmDenseSpec

from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.hopper.dense_candidates import dense_candidates
from deepinfer_nvidia.kernels.hopper.ring import SHARED_BYTES, Tuning, sources
from deepinfer_nvidia.kernels.hopper.spread import spread
from deepinfer_nvidia.kernels.hopper.tensor_map import matrix_map
from deepinfer_nvidia.kernels.tuning.table import entries

__all__ = ["LIMITS", "Tuning", "build", "candidates", "default_tuning"]

_FILES = ("copies.cuh", "gemm_ring.cuh", "gemm_dense.cuh")


def _takes(spec: GemmDenseSpec) -> bool:
    """With groups a stage of 64 inputs must not reach into the inputs of the next group."""
    return spec.in_width % (64 if spec.groups > 1 else 8) == 0


LIMITS = KernelLimits(architectures=("sm_90a",), takes=_takes)


def default_tuning(_spec: GemmDenseSpec) -> Any:
    """The smallest tile; ``choice`` has what launches use for each number of rows."""
    return entries("hopper/gemm_dense")[0].tuning


def candidates(spec: GemmDenseSpec) -> tuple[Tuning, ...]:
    """What may be faster than the tunings of the table."""
    return dense_candidates(spec)


def build(spec: GemmDenseSpec, tuning: Tuning) -> Any:
    """One kernel for any number of rows."""
    return spread(spec, tuning) if tuning.is_spread else _persistent(spec, tuning)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Results:
    """How results leave shared memory: ``chunk`` channels at a time, in boxes of ``box``.

    Both are 0 if they leave registers at once.
    """

    chunk: int
    box: int
    bytes: int


def _results(spec: GemmDenseSpec, tuning: Tuning) -> _Results:
    """As many at a time as fit beside the ring.

    Rows of results that begin at no multiple of 16 bytes are beyond the copy engine.
    """
    size = 4 if spec.out_dtype == "float32" else 2
    left = (SHARED_BYTES + 1024) // tuning.blocks_per_core - 1024 - tuning.ring_bytes
    pieces = [tuning.channels // n for n in range(1, 33) if tuning.channels % (8 * n) == 0]
    a_channel = tuning.groups * 64 * size
    chunk = next((piece for piece in pieces if piece * a_channel <= left), 0)
    box = gcd(chunk, 128 // size, spec.out_width if spec.groups > 1 else 0)
    if spec.out_width * size % 16 or box % 8:
        return _Results(chunk=0, box=0, bytes=0)
    return _Results(chunk=chunk, box=box, bytes=chunk * a_channel)


def _source(spec: GemmDenseSpec, tuning: Tuning, results: _Results) -> str:
    out_type = {"float32": "float", "bfloat16": "bfloat16_t"}[spec.out_dtype]
    head = (spec.groups, spec.out_width, spec.in_width, tuning.parts, tuning.ring(spec.out_width))
    tail = (tuning.band, results.chunk, results.box, out_type, tuning.registers)
    kind = f"Dense<{', '.join(map(str, (*head, *tail)))}>"
    return f"""{sources(*_FILES)}
namespace deepinfer_dense {{
using Kernel = {kind};
__device__ __forceinline__ void gemm_dense_begin(uint8_t *shared, const CUtensorMap &weight,
    int rows) {{
  Kernel::begin({{(char *)shared + {results.bytes}}}, weight, rows);
}}
__device__ __forceinline__ void gemm_dense_entry(uint8_t *shared, const CUtensorMap &x,
    const CUtensorMap &weight, const CUtensorMap &results, {out_type} *out, int rows) {{
  Kernel kernel{{{{(char *)shared + {results.bytes}}}, x, weight, results, out, rows}};
  kernel.run();
}}
}}
"""


def _persistent(spec: GemmDenseSpec, tuning: Tuning) -> Any:
    rows = T.dynamic("rows")
    groups, out_width, in_width = spec.groups, spec.out_width, spec.in_width
    results = _results(spec, tuning)
    source = _source(spec, tuning, results)
    shared_bytes = tuning.ring_bytes + results.bytes
    cluster = tuning.down * tuning.across
    blocks = tuning.cores * tuning.blocks_per_core // cluster * cluster
    map_of_rows = partial(matrix_map, columns=groups * in_width, box_rows=tuning.row_box)
    map_of_weights = partial(
        matrix_map,
        rows=groups * out_width,
        columns=in_width,
        box_rows=tuning.channel_box(out_width),
    )

    def map_of_results(x_TGK: Any, out_TGN: Any, rows: Any) -> Any:
        if not results.chunk:
            return map_of_rows(x_TGK, rows)
        width, dtype = groups * out_width, spec.out_dtype
        return matrix_map(out_TGN, rows, width, 16, box_columns=results.box, dtype=dtype)

    @T.prim_func
    def gemm_dense(
        x_TGK: T.Tensor((rows, groups, in_width), "bfloat16"),
        weight_GNK: T.Tensor((groups, out_width, in_width), "bfloat16"),
        out_TGN: T.Tensor((rows, groups, out_width), spec.out_dtype),
    ) -> None:
        with T.Kernel(blocks, threads=tuning.threads_of_a_block, cluster_dims=cluster) as _:
            T.import_source(source)
            T.annotate_min_blocks_per_sm(tuning.blocks_per_core)
            shared = T.alloc_shared((shared_bytes,), "uint8", scope="shared.dyn")
            let_next_start(rows)
            T.call_extern(
                "handle",
                "deepinfer_dense::gemm_dense_begin",
                T.address_of(shared[0]),
                map_of_weights(weight_GNK),
                rows,
            )
            T.pdl_sync()
            T.call_extern(
                "handle",
                "deepinfer_dense::gemm_dense_entry",
                T.address_of(shared[0]),
                map_of_rows(x_TGK, rows),
                map_of_weights(weight_GNK),
                map_of_results(x_TGK, out_TGN, rows),
                T.address_of(out_TGN[0, 0, 0]),
                rows,
            )

    return gemm_dense
