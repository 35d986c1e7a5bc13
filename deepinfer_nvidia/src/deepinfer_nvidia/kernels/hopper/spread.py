"""How do the blocks of a cluster share a dense product? They divide K, and add parts in order.

The C++ side is ``gemm_spread.cuh``.
"""

from functools import partial
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.gemm import GemmDenseSpec

from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.hopper.ring import Tuning, sources
from deepinfer_nvidia.kernels.hopper.tensor_map import matrix_map

__all__ = ["spread"]

_FILES = ("copies.cuh", "gemm_ring.cuh", "gemm_spread.cuh")


def spread(spec: GemmDenseSpec, tuning: Tuning) -> Any:
    """The kernel of ``hopper.gemm_dense`` with the parts of K spread over a cluster, one a tile."""
    rows = T.dynamic("rows")
    out_width, in_width, blocks = spec.out_width, spec.in_width, tuning.spread_blocks
    out_type = {"float32": "float", "bfloat16": "bfloat16_t"}[spec.out_dtype]
    cut = (tuning.parts, tuning.held)
    ring = tuning.ring(out_width)
    numbers = (out_width, in_width, *cut, ring, out_type, tuning.registers)
    entry = f"""
namespace deepinfer_dense {{
using Kernel = Spread<{", ".join(map(str, numbers))}>;
__device__ __forceinline__ void gemm_dense_begin(uint8_t *shared, const CUtensorMap &weight,
    int rows, int block, int channel_tile, int row_tile) {{
  Kernel::begin({{(char *)shared}}, weight, rows, block, channel_tile, row_tile);
}}
__device__ __forceinline__ void gemm_dense_entry(uint8_t *shared, const CUtensorMap &x,
    const CUtensorMap &weight, {out_type} *out, int rows, int block, int channel_tile,
    int row_tile) {{
  Kernel kernel{{{{(char *)shared}}, x, weight, out, rows}};
  kernel.run(block, channel_tile, row_tile);
}}
}}
"""
    source = sources(*_FILES) + entry
    shared_bytes = tuning.ring_bytes
    map_of_weights = partial(
        matrix_map, rows=out_width, columns=in_width, box_rows=tuning.channel_box(out_width)
    )

    @T.prim_func
    def gemm_dense(
        x_TGK: T.Tensor((rows, 1, in_width), "bfloat16"),
        weight_GNK: T.Tensor((1, out_width, in_width), "bfloat16"),
        out_TGN: T.Tensor((rows, 1, out_width), spec.out_dtype),
    ) -> None:
        with T.Kernel(
            blocks,
            -(-out_width // tuning.channels),
            T.ceildiv(rows, tuning.rows),
            threads=tuning.threads_of_a_block,
            cluster_dims=blocks,
        ) as (block, channel_tile, row_tile):
            T.import_source(source)
            shared = T.alloc_shared((shared_bytes,), "uint8", scope="shared.dyn")
            let_next_start(rows)
            T.call_extern(
                "handle",
                "deepinfer_dense::gemm_dense_begin",
                T.address_of(shared[0]),
                map_of_weights(weight_GNK),
                *(rows, block, channel_tile, row_tile),
            )
            T.pdl_sync()
            T.call_extern(
                "handle",
                "deepinfer_dense::gemm_dense_entry",
                T.address_of(shared[0]),
                matrix_map(x_TGK, rows, in_width, tuning.row_box),
                map_of_weights(weight_GNK),
                T.address_of(out_TGN[0, 0, 0]),
                rows,
                block,
                channel_tile,
                row_tile,
            )

    return gemm_dense
