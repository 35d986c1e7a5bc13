"""How many elements of a row does a thread move at once?"""

from math import gcd

__all__ = ["VECTOR_BYTES", "vector_elements"]

VECTOR_BYTES = 16
_ELEMENT_BYTES = {"bfloat16": 2, "float32": 4}


def vector_elements(width: int, *dtypes: str, alignment: int = VECTOR_BYTES) -> int:
    """Elements of the widest access that all dtypes allow and that divides a row of the width.

    Args:
        width: elements of a row.
        dtypes: ``bfloat16`` or ``float32``: what is read and what is written.
        alignment: bytes, power of two, at most 16, that addresses of rows are multiples of.
    """
    largest = max(_ELEMENT_BYTES[dtype] for dtype in dtypes)
    return gcd(width, max(1, alignment // largest))
