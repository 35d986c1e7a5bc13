"""Sparse attention for SM90 in CUDA C++. Twin: the TileLang kernel of ``attention_sparse``.

The same operator with the same arguments, for 512 channels, heads by 64, and the cache formats.
What TileLang did not reach is that warps which gather and widen keys feed warps which multiply,
each kind with registers of its own, and none waiting for what it does not need: the
``attention_*.cuh`` files have that. TileLang still compiles and launches it. The tile interpreter
cannot run it; on a device it has the same cases as its twin.
"""

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.attention import KeySourceSpec, SparseAttentionSpec
from deepinfer_core.interfaces.operators.catalogue import KernelLimits

from deepinfer_nvidia.kernels.key_sources import with_sources
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["LIMITS", "Tuning", "build"]

_FORMATS = {"bfloat16": 1, "mxfp8": 2, "fp4_e4m3x16": 3}
_WIDTH, _HEADS, _THREADS = 512, 64, 512
_LIST_AT_BYTES = 215040
_LARGEST_LISTS = 2048
_LOG2_E = 1.4426950408889634


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """Registers of a thread of each kind: together ``2 * gathering + scoring + blending`` <= 512.

    Attributes:
        gathering: of the two warpgroups that gather keys.
        scoring: of the one that scores and blends.
        blending: of the one that blends.
    """

    threads: int = _THREADS
    gathering: int = 72
    scoring: int = 208
    blending: int = 160


def _takes(spec: SparseAttentionSpec) -> bool:
    return (
        spec.head_width == _WIDTH
        and spec.heads % _HEADS == 0
        and spec.compute == "bfloat16"
        and len(spec.sources) <= 2
        and all(source.number_format in _FORMATS for source in spec.sources)
        and sum(source.list_capacity for source in spec.sources) <= _LARGEST_LISTS
    )


LIMITS = KernelLimits(architectures=("sm_90a",), takes=_takes)


def build(spec: SparseAttentionSpec, tuning: Tuning) -> Any:
    """Attention over one or two sources; see ``LIMITS``."""
    rows = T.dynamic("rows")
    blocks = (rows, spec.heads // _HEADS)
    lists = sum(source.list_capacity for source in spec.sources)
    shared_bytes = _LIST_AT_BYTES + 8 * lists
    text = _source_text(spec, tuning)

    @T.macro
    def attend(
        q_TND: T.Buffer, sources: Any, sink_N: T.Buffer, out_TND: T.Buffer, lse_TN: T.Buffer
    ) -> None:
        with T.Kernel(*blocks, threads=tuning.threads) as (_row, _head_block):
            T.import_source(text)
            shared = T.alloc_shared((shared_bytes,), "uint8")
            T.call_extern(
                "handle",
                "deepinfer_attend",
                T.access_ptr(shared[0], "rw", shared_bytes),
                T.access_ptr(q_TND[0, 0, 0], "r"),
                *[word for source in sources for word in _words(*source)],
                T.access_ptr(sink_N[0], "r"),
                T.access_ptr(out_TND[0, 0, 0], "w"),
                T.access_ptr(lse_TN[0, 0], "w"),
                T.float32(spec.scale * _LOG2_E),
            )

    return with_sources(spec, rows, attend)


def _words(_data_PE: Any, pages_PB: Any, slot_TL: Any) -> tuple[Any, ...]:
    """What the kernel wants to know about a source; the pages' bytes have its data too."""
    return (
        T.access_ptr(pages_PB[0, 0], "r"),
        T.access_ptr(slot_TL[0, 0], "r"),
        pages_PB.strides[0],
        slot_TL.shape[1],
        slot_TL.strides[0],
    )


def _source_text(spec: SparseAttentionSpec, tuning: Tuning) -> str:
    """The kernel's parts, and a function for this spec that has one argument after the other."""
    header = "".join(
        files(__package__).joinpath(f"attention_{part}.cuh").read_text(encoding="utf-8")
        for part in ("memory", "keys", "sparse")
    )
    numbers = range(len(spec.sources))
    given = "".join(
        f"const void *pages{i}, const void *slot{i}, int64_t stride{i}, int length{i},"
        f" int list{i}, "
        for i in numbers
    )
    made = [
        f"{{(const uint8_t *)pages{i}, (const int64_t *)slot{i}, stride{i}, length{i}, list{i}}}"
        for i in numbers
    ]
    forms = [_form(source) for source in spec.sources]
    if len(spec.sources) == 1:
        made.append("{}")
        forms.append("deepinfer::kNone, 0, 0")
    return f"""#define GATHERER_REGISTERS {tuning.gathering}
#define SCORER_REGISTERS {tuning.scoring}
#define BLENDER_REGISTERS {tuning.blending}
{header}
TL_DEVICE void deepinfer_attend(void *shared, const void *q, {given}const void *sink, void *out,
                                void *lse, float factor) {{
  deepinfer::attend<{spec.heads}, {forms[0]}, {forms[1]}>(
      (uint8_t *)shared, (const bfloat16_t *)q, {made[0]}, {made[1]}, (const float *)sink,
      (bfloat16_t *)out, (float *)lse, factor);
}}
"""


def _form(source: KeySourceSpec) -> str:
    number = _FORMATS[source.number_format]
    return f"{number}, {source.list_capacity}, {source.rows_per_page}"
