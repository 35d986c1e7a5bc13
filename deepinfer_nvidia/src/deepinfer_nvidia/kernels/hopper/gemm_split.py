"""Products of bf16 rows with few channels on Hopper. Twin: ``kernels.gemm_dense`` with ``parts``.

Hand-written CUDA (``gemm_split.cuh``): the blocks of a cluster divide K, and add their parts in
order.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.gemm import GemmDenseSpec

from deepinfer_nvidia.kernels.hopper.tensor_map import matrix_map
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["Tuning", "build"]

_SOURCE = Path(__file__).with_name("gemm_split.cuh")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """How the work is cut; the parts of K are in the spec.

    Attributes:
        rows: rows of a tile, 8 to 256.
        depth: steps of 64 inputs in a stage.
        stages: stages in shared memory.
    """

    rows: int
    depth: int
    stages: int

    @property
    def shared_bytes(self) -> int:
        """Of the ring, the sums of a part, and barriers."""
        return self.stages * ((64 + self.rows) * self.depth * 128 + 16) + self.rows * 256


def build(spec: GemmDenseSpec, tuning: Tuning) -> Any:
    """Any number of rows; one group; ``spec.parts`` parts, 2 to 8."""
    rows = T.dynamic("rows")
    out_width, in_width, parts = spec.out_width, spec.in_width, spec.parts
    out_type = {"float32": "float", "bfloat16": "bfloat16_t"}[spec.out_dtype]
    numbers = (out_width, in_width, parts, tuning.rows, tuning.depth, tuning.stages, out_type)
    entry = f"""
namespace deepinfer_split {{
__device__ __forceinline__ void gemm_split_entry(uint8_t *shared, const CUtensorMap &x,
    const CUtensorMap &weight, {out_type} *out, int rows, int channel_tile, int row_tile,
    int part) {{
  Split<{", ".join(map(str, numbers))}> kernel{{(char *)shared, x, weight, out, rows}};
  kernel.run(channel_tile, row_tile, part);
}}
}}
"""
    source = _SOURCE.read_text() + entry
    shared_bytes = tuning.shared_bytes

    @T.prim_func
    def gemm_split(
        x_TGK: T.Tensor((rows, 1, in_width), "bfloat16"),
        weight_GNK: T.Tensor((1, out_width, in_width), "bfloat16"),
        out_TGN: T.Tensor((rows, 1, out_width), spec.out_dtype),
    ) -> None:
        with T.Kernel(
            parts,
            -(-out_width // 64),
            T.ceildiv(rows, tuning.rows),
            threads=160,
            cluster_dims=parts,
        ) as (part, channel_tile, row_tile):
            T.import_source(source)
            shared = T.alloc_shared((shared_bytes,), "uint8", scope="shared.dyn")
            T.call_extern(
                "handle",
                "deepinfer_split::gemm_split_entry",
                T.address_of(shared[0]),
                matrix_map(x_TGK, rows, in_width, tuning.rows),
                matrix_map(weight_GNK, out_width, in_width, 64),
                T.address_of(out_TGN[0, 0, 0]),
                rows,
                channel_tile,
                row_tile,
                part,
            )

    return gemm_split
