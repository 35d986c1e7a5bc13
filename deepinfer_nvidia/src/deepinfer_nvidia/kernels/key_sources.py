"""Which arguments does a kernel of sparse attention have?

They follow from the spec alone, and are the same in every language that a kernel is written in.
"""

from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.attention import KeySourceSpec, SparseAttentionSpec

from deepinfer_nvidia.kernels.key_rows import key_rows

__all__ = ["with_sources"]


def with_sources(spec: SparseAttentionSpec, rows: Any, attend: Any) -> Any:
    """The kernel of a macro.

    Args:
        spec: with one or two sources.
        rows: the symbol for their number.
        attend: takes queries; data, scales and slots of each source; sinks; and both outputs.
    """
    # Every argument needs a buffer of its own: two names for one would be one argument.
    q, out = (T.Tensor((rows, spec.heads, spec.head_width), spec.compute) for _ in range(2))
    sink = T.Tensor((spec.heads,), "float32")
    lse = T.Tensor((rows, spec.heads), "float32")
    data_0, scale_0, slot_0 = _source(0, spec.sources[0], spec.head_width, rows)
    data_1, scale_1, slot_1 = _source(1, spec.sources[-1], spec.head_width, rows)

    def over_one_source() -> Any:
        @T.prim_func
        def attention_sparse(
            q_TND: q,
            data_0_PE: data_0,
            scale_0_PB: scale_0,
            slot_0_TL: slot_0,
            sink_N: sink,
            out_TND: out,
            lse_TN: lse,
        ) -> None:
            attend(q_TND, ((data_0_PE, scale_0_PB, slot_0_TL),), sink_N, out_TND, lse_TN)

        return attention_sparse

    def over_two_sources() -> Any:
        @T.prim_func
        def attention_sparse(
            q_TND: q,
            data_0_PE: data_0,
            scale_0_PB: scale_0,
            slot_0_TL: slot_0,
            data_1_PE: data_1,
            scale_1_PB: scale_1,
            slot_1_TL: slot_1,
            sink_N: sink,
            out_TND: out,
            lse_TN: lse,
        ) -> None:
            first = (data_0_PE, scale_0_PB, slot_0_TL)
            second = (data_1_PE, scale_1_PB, slot_1_TL)
            attend(q_TND, (first, second), sink_N, out_TND, lse_TN)

        return attention_sparse

    return over_one_source() if len(spec.sources) == 1 else over_two_sources()


def _source(number: int, source: KeySourceSpec, width: int, rows: Any) -> tuple[Any, Any, Any]:
    """What data, scales and slots of a source are, as annotations of a kernel."""
    names = ("pages", "stride", "elements", "bytes_stride", "bytes", "length", "list_stride")
    pages, stride, elements, bytes_stride, size, length, list_stride = (
        T.dynamic(f"{name}_{number}") for name in names
    )
    element = key_rows(source.number_format, width).element
    return (
        T.StridedTensor((pages, elements), (stride, 1), element),
        T.StridedTensor((pages, size), (bytes_stride, 1), "uint8"),
        T.StridedTensor((rows, length), (list_stride, 1), "int64"),
    )
