"""Products of many bf16 rows with bf16 weights on Hopper. Twin: ``kernels.gemm_dense``.

Hand-written CUDA (``gemm_dense.cuh``): persistent blocks in clusters that share what they read, and
matrix instructions that are not waited for one by one.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.catalogue import KernelLimits
from deepinfer_core.interfaces.operators.gemm import GemmDenseSpec

from deepinfer_nvidia.kernels.hopper.tensor_map import matrix_map
from deepinfer_nvidia.kernels.tuning import KernelTuning
from deepinfer_nvidia.kernels.tuning.table import entries

__all__ = ["LIMITS", "Tuning", "build", "default_tuning"]

_SOURCES = [Path(__file__).with_name(name) for name in ("copies.cuh", "gemm_dense.cuh")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """How the work is cut.

    Attributes:
        groups: warp groups that multiply.
        tiles: tiles of 64 rows that each of them owns.
        channels: channels of a tile, 8 to 256.
        stages: stages of 64 inputs in shared memory.
        down: tiles of rows in a cluster.
        across: tiles of channels in a cluster.
        band: clusters of rows that run next to each other.
        blocks_per_core: blocks that share a core.
        cores: streaming multiprocessors of the device.
        registers: of a multiplying thread when they are moved between warp groups; 0 leaves them.
    """

    groups: int = 2
    tiles: int = 1
    channels: int
    stages: int
    down: int = 1
    across: int = 1
    band: int = 8
    blocks_per_core: int = 1
    cores: int = 132
    registers: int = 0


def _takes(spec: GemmDenseSpec) -> bool:
    """With groups a stage of 64 inputs must not reach into the inputs of the next group."""
    return spec.in_width % (64 if spec.groups > 1 else 8) == 0


LIMITS = KernelLimits(architectures=("sm_90a",), takes=_takes)


def default_tuning(_spec: GemmDenseSpec) -> Any:
    """The smallest tile; ``choice`` has what launches use for each number of rows."""
    return entries("hopper/gemm_dense")[0].tuning


def build(spec: GemmDenseSpec, tuning: Tuning) -> Any:
    """One persistent kernel for any number of rows."""
    rows = T.dynamic("rows")
    groups, out_width, in_width = spec.groups, spec.out_width, spec.in_width
    tile_rows = tuning.groups * tuning.tiles * 64
    out_type = {"float32": "float", "bfloat16": "bfloat16_t"}[spec.out_dtype]
    cut = (tuning.groups, tuning.tiles, tuning.channels, tuning.stages)
    cluster = tuning.down * tuning.across
    numbers = (groups, out_width, in_width, *cut, tuning.down, tuning.across, tuning.band)
    struct = (
        f"deepinfer_dense::Dense<{', '.join(map(str, (*numbers, out_type, tuning.registers)))}>"
    )
    entry = f"""
namespace deepinfer_dense {{
__device__ __forceinline__ void gemm_dense_entry(uint8_t *shared, const CUtensorMap &x,
    const CUtensorMap &weight, {out_type} *out, int rows) {{
  {struct} kernel{{(char *)shared, x, weight, out, rows}};
  kernel.run();
}}
}}
"""
    source = "".join(path.read_text() for path in _SOURCES) + entry
    shared_bytes = tuning.stages * ((tile_rows + tuning.channels) * 128 + 16)
    blocks = tuning.cores * tuning.blocks_per_core // cluster * cluster

    # Registers are moved between warp groups, so the copying warp then gets a whole group.
    threads = 128 * tuning.groups + (128 if tuning.registers else 32)

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
                matrix_map(x_TGK, rows, groups * in_width, tile_rows // tuning.across),
                matrix_map(
                    weight_GNK, groups * out_width, in_width, tuning.channels // tuning.down
                ),
                T.address_of(out_TGN[0, 0, 0]),
                rows,
            )

    return gemm_dense
