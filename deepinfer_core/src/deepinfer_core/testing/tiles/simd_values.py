"""What do SIMD operations that make a register out of registers compute?

Each takes whole registers and gives a whole register; masking is done by the caller, except where a
reduction or a squeeze depends on the mask.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepinfer_core.testing.tiles import formats
from deepinfer_core.testing.tiles.faults import UnknownTileOperation
from deepinfer_core.testing.tiles.registers import BYTES, poison

__all__ = ["COMPARE", "ELEMENTWISE", "REDUCE", "convert", "interleaved", "separated"]

Array = NDArray[Any]


def through_float32(compute: Callable[..., Any]) -> Callable[..., Any]:
    def wide(*values: Array) -> Array:
        dtype = values[0].dtype
        result = compute(*[np.asarray(value, np.float32) for value in values])
        return np.asarray(result).astype(dtype)

    return wide


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "vadd": np.add, "vadds": np.add, "vsub": np.subtract, "vmul": np.multiply,
    "vmuls": np.multiply, "vdiv": np.divide, "vmax": np.fmax, "vmaxs": np.fmax,
    "vmin": np.fmin, "vmins": np.fmin, "vand": np.bitwise_and, "vor": np.bitwise_or,
    "vxor": np.bitwise_xor, "vshl": np.left_shift, "vshls": np.left_shift,
    "vshr": np.right_shift, "vshrs": np.right_shift, "vabs": np.abs, "vneg": np.negative,
    "vnot": np.bitwise_not,
    "vexp": through_float32(np.exp), "vln": through_float32(np.log),
    "vsqrt": through_float32(np.sqrt),
    "vrelu": lambda x: np.fmax(x, np.zeros((), x.dtype)),
    "vlrelu": lambda x, slope: np.where(x >= 0, x, x * slope),
    "vprelu": lambda x, slope: np.where(x >= 0, x, x * slope),
    "vexpdif": lambda x, y: np.exp(x - y), "vabsdif": lambda x, y: np.abs(x - y),
}  # fmt: skip
"""Operations lane by lane: registers (and a scalar) to a register."""

COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal, "ne": np.not_equal, "gt": np.greater, "ge": np.greater_equal,
    "lt": np.less, "le": np.less_equal,
}  # fmt: skip


def total(values: Array, active: Array, dtype: Any) -> Array:
    """The sum of active elements in the first element of the result."""
    out = np.zeros(BYTES // dtype.itemsize, dtype)
    out[0] = np.sum(values[active], dtype=dtype if dtype.kind in "iu" else np.float32)
    return out


def extreme(pick: Callable[[Array], Any]) -> Callable[[Array, Array, Any], Array]:
    """The extreme active element in front.

    Descriptions of the device disagree whether its number follows it, so that is poison here.
    """

    def reduce(values: Array, active: Array, dtype: Any) -> Array:
        out = np.zeros(len(values), dtype)
        numbers = np.flatnonzero(active)
        if numbers.size:
            out[0] = values[numbers[pick(values[numbers])]]
        out[1] = poison(dtype)
        return out

    return reduce


def grouped(combine: Any, start: Callable[[Any], Any]) -> Callable[[Array, Array, Any], Array]:
    """Each group of 32 bytes on its own; results in the lowest elements."""

    def reduce(values: Array, active: Array, dtype: Any) -> Array:
        width = 32 // dtype.itemsize
        filled = np.where(active, values, start(dtype)).astype(dtype)
        groups = combine.reduce(filled.reshape(-1, width), axis=1)
        return np.concatenate([groups, np.zeros(len(values) - len(groups), dtype)]).astype(dtype)

    return reduce


def pairwise(values: Array, active: Array, dtype: Any) -> Array:
    """Sums of neighbours in the lower half."""
    filled = np.where(active, values, np.zeros((), dtype))
    sums = filled[0::2] + filled[1::2]
    return np.concatenate([sums, np.zeros(len(values) // 2, dtype)]).astype(dtype)


def squeezed(values: Array, active: Array, dtype: Any) -> Array:
    """Active elements moved to the low end."""
    kept = values[active]
    return np.concatenate([kept, np.zeros(len(values) - len(kept), dtype)]).astype(dtype)


def lowest(dtype: Any) -> Any:
    return np.iinfo(dtype).min if dtype.kind in "iu" else dtype.type(-np.inf)


def highest(dtype: Any) -> Any:
    return np.iinfo(dtype).max if dtype.kind in "iu" else dtype.type(np.inf)


REDUCE: dict[str, Callable[[Array, Array, Any], Array]] = {
    "vcadd": total,
    "vcmax": extreme(np.argmax),
    "vcmin": extreme(np.argmin),
    "vcgadd": grouped(np.add, lambda dtype: dtype.type(0)),
    "vcgmax": grouped(np.fmax, lowest),
    "vcgmin": grouped(np.fmin, highest),
    "vcpadd": pairwise,
    "vsqz": squeezed,
}
"""Operations across lanes: a register, its active elements and the result's dtype."""


def interleaved(first: Array, second: Array) -> tuple[Array, Array]:
    """Elements of two registers in turn, as two registers."""
    both = np.stack([first, second], axis=1).reshape(-1)
    return both[: len(first)], both[len(first) :]


def separated(first: Array, second: Array) -> tuple[Array, Array]:
    """Even and odd elements of two registers behind each other."""
    both = np.concatenate([first, second])
    return both[0::2].copy(), both[1::2].copy()


PARTS = {"PART_EVEN": 0, "PART_ODD": 1, **{f"PART_P{n}": n for n in range(4)}}
ROUND: dict[str, Callable[[Any], Any]] = {
    "ROUND_R": np.rint,
    "ROUND_A": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "ROUND_F": np.floor,
    "ROUND_C": np.ceil,
    "ROUND_Z": np.trunc,
}


def convert(values: Array, predicate: Array, target: str, words: list[str]) -> Array:
    """``vcvt``: a widening takes every n-th element, a narrowing fills every n-th."""
    part = next((PARTS[word] for word in words if word in PARTS), 0)
    rounding = next((word for word in words if word.startswith("ROUND_")), "ROUND_R")
    saturating = "RS_DISABLE" not in words
    dtype = formats.numpy_dtype(target)
    source_width, width = values.dtype.itemsize, dtype.itemsize
    ratio = max(source_width, width) // min(source_width, width)
    bits = predicate[:: min(source_width, width)]
    if width > source_width:
        taken = element_cast(values[part::ratio], target, rounding, saturating=saturating)
        return np.where(bits[part::ratio], taken, np.zeros((), dtype))
    taken = element_cast(values, target, rounding, saturating=saturating)
    out = np.zeros(BYTES // width, dtype)
    out[part::ratio] = np.where(bits[part::ratio], taken, np.zeros((), dtype))
    return out


def element_cast(values: Array, target: str, rounding: str, *, saturating: bool) -> Array:
    dtype, source = formats.numpy_dtype(target), values.dtype
    if dtype.kind in "iu" and source.kind not in "iub":
        values = ROUND[rounding](values.astype(np.float64))
    elif dtype.kind not in "iu" and rounding != "ROUND_R" and dtype.itemsize < source.itemsize:
        raise UnknownTileOperation("vcvt", f"{source} to {target} with {rounding}")
    elif dtype.kind in "iu" and saturating:
        limits = np.iinfo(dtype)
        values = np.clip(values.astype(np.int64), limits.min, limits.max)
    return np.asarray(formats.cast_array(values, target))
