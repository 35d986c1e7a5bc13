"""Products of bf16 rows, sorted by expert, with repacked MXFP4 weights. Twin: ``reference.gemm``.

Hand-written CUDA for Hopper (``gemm_experts.cuh``): widening happens on packed pairs in the
registers that feed the tensor core, which TileLang 0.1.15 cannot express. ``kernels.gemm_experts``
is the same product in TileLang, on weights as the checkpoint has them.

Every sum runs over K in ascending order with one instruction per 16 inputs, whatever the tile.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tilelang.language as T
import torch
from deepinfer_core.interfaces.operators.catalogue import KernelLimits
from deepinfer_core.interfaces.operators.gemm import GemmExpertsSpec
from deepinfer_core.numeric import QuantTensor

from deepinfer_nvidia.gemm.packing import RECORD_BYTES, pack_experts
from deepinfer_nvidia.kernels.early_start import let_next_start
from deepinfer_nvidia.kernels.hopper.expert_candidates import expert_candidates
from deepinfer_nvidia.kernels.hopper.tensor_map import matrix_map
from deepinfer_nvidia.kernels.product_times import fitting
from deepinfer_nvidia.kernels.tuning import KernelTuning
from deepinfer_nvidia.kernels.tuning.table import entries

__all__ = ["LIMITS", "Tuning", "arranged", "build", "candidates", "default_tuning"]

_SOURCES = [Path(__file__).with_name(name) for name in ("copies.cuh", "gemm_experts.cuh")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """How the work is cut.

    Attributes:
        groups: warp groups that multiply; one more copies.
        tiles: tiles of 64 channels that each of them owns.
        rows: rows of an expert at once, 8 to 256.
        depth: records (64 inputs) that a stage holds; 1, 2 or 4.
        stages: stages of the ring in shared memory.
        blocks_per_core: blocks that share a core.
        cores: streaming multiprocessors of the device.
        registers: of a multiplying thread when they are moved between warp groups; 0 leaves them.
        is_halved: items of few rows, and those of a last wave that is at most half full, are
            multiplied with half as many rows.
    """

    groups: int
    tiles: int = 1
    rows: int
    depth: int
    stages: int
    blocks_per_core: int = 1
    cores: int = 132
    registers: int = 0
    is_halved: bool = False

    @property
    def shared_bytes(self) -> int:
        """Of the ring, without barriers and ends."""
        weights = self.groups * self.tiles * self.depth * RECORD_BYTES
        return self.stages * -(-(self.depth * self.rows * 128 + weights) // 1024) * 1024


def _takes(spec: GemmExpertsSpec) -> bool:
    """Rows of 16 bytes, which the copy engine asks for."""
    is_packed = spec.x_dtype == "bfloat16" and spec.weight_format == "mxfp4"
    return is_packed and spec.in_width % 8 == 0


LIMITS = KernelLimits(architectures=("sm_90a",), takes=_takes)


def default_tuning(spec: GemmExpertsSpec) -> Any:
    """The first measured one that fits; ``choice`` has what launches use."""
    return fitting("gemm_experts", entries("hopper/gemm_experts"), spec)[0].tuning


def candidates(spec: GemmExpertsSpec) -> tuple[Tuning, ...]:
    """What ``bench kernels --tune`` measures besides the table."""
    return tuple(Tuning(**fields) for fields in expert_candidates(spec))


def arranged(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The operator's arguments with weights in this kernel's order."""
    own = dict(tensors)
    data_ENC, scale_ENG = own.pop("weight_ENC"), own.pop("scale_ENG")
    return own | {
        "weight_P": pack_experts(QuantTensor(data=data_ENC, scale=scale_ENG, format="mxfp4"))
    }


def build(spec: GemmExpertsSpec, tuning: Tuning) -> Any:
    """One persistent kernel for any number of rows; ``weight_P`` comes from ``gemm.packing``."""
    rows = T.dynamic("rows")
    experts, out_width, in_width = spec.experts, spec.out_width, spec.in_width
    channel_tiles = -(-out_width // 64)
    records = -(-in_width // 256) * 4
    out_type = {"float32": "float", "bfloat16": "bfloat16_t"}[spec.out_dtype]
    numbers = (experts, out_width, in_width, tuning.groups, tuning.tiles, tuning.rows, tuning.depth)
    tail = (out_type, 0, tuning.registers, str(tuning.is_halved).lower())
    struct = f"deepinfer::Experts<{', '.join(map(str, (*numbers, tuning.stages, *tail)))}>"
    entry = f"""
namespace deepinfer {{
__device__ __forceinline__ void gemm_experts_packed_entry(uint8_t *shared, const uint8_t *weight,
    const CUtensorMap &x, const int64_t *ends, {out_type} *out) {{
  {struct} kernel{{(char *)shared, weight, x, out}};
  kernel.run(ends);
}}
}}
"""
    source = "".join(path.read_text() for path in _SOURCES) + entry
    shared_bytes = tuning.shared_bytes + 16 * tuning.stages + 8 * experts

    # Registers are moved between warp groups, so the copying warp then gets a whole group.
    threads = 128 * tuning.groups + (128 if tuning.registers else 32)

    @T.prim_func
    def gemm_experts(
        x_RK: T.Tensor((rows, in_width), "bfloat16"),
        weight_P: T.Tensor((experts, channel_tiles, records, RECORD_BYTES), "uint8"),
        ends_E: T.Tensor((experts,), "int64"),
        out_RN: T.Tensor((rows, out_width), spec.out_dtype),
    ) -> None:
        with T.Kernel(tuning.cores * tuning.blocks_per_core, threads=threads) as _:
            T.import_source(source)
            T.annotate_min_blocks_per_sm(tuning.blocks_per_core)
            shared = T.alloc_shared((shared_bytes,), "uint8", scope="shared.dyn")
            let_next_start(rows)
            T.pdl_sync()
            T.call_extern(
                "handle",
                "deepinfer::gemm_experts_packed_entry",
                T.address_of(shared[0]),
                T.address_of(weight_P[0, 0, 0, 0]),
                matrix_map(x_RK, rows, in_width, tuning.rows // (2 if tuning.is_halved else 1)),
                T.address_of(ends_E[0]),
                T.address_of(out_RN[0, 0]),
            )

    return gemm_experts
