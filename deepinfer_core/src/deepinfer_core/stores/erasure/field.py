"""Which pieces are made of k others, and how do any k of them give the rest?

Reed-Solomon code over the field of 256 elements: bytes are polynomials over {0, 1} modulo
x^8 + x^4 + x^3 + x^2 + 1, addition is exclusive or. The first k of k + m pieces are the data
itself. Parity row i (from k on) has the coefficient 1 / (i + j) for piece j, a Cauchy matrix, of
which every square part has an inverse: so any k pieces determine all. The same matrix as
``gf_gen_cauchy1_matrix`` of ISA-L.

Source: Blömer et al., "An XOR-Based Erasure-Resilient Coding Scheme", ICSI TR-95-048, 1995; ISA-L,
``erasure_code/ec_base.c`` (BSD-3-Clause).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["MOST_PIECES", "PRODUCTS", "Bytes", "generator_matrix", "inverse", "recovery"]

MOST_PIECES = 255
"""Rows that the matrix can have: each has a number of one byte, and none is divided by zero."""

_POLYNOMIAL = 0x11D

Bytes = npt.NDArray[np.uint8]


def _powers() -> tuple[list[int], list[int]]:
    """Powers of x, twice in a row, and the exponent of each element but zero."""
    power, exponent, value = [0] * 510, [0] * 256, 1
    for number in range(255):
        power[number] = power[number + 255] = value
        exponent[value] = number
        value <<= 1
        if value & 0x100:
            value ^= _POLYNOMIAL
    return power, exponent


_POWER, _EXPONENT = _powers()


def _products() -> Bytes:
    table = np.zeros((256, 256), np.uint8)
    for one in range(1, 256):
        for other in range(1, 256):
            table[one, other] = _POWER[_EXPONENT[one] + _EXPONENT[other]]
    table.setflags(write=False)
    return table


PRODUCTS = _products()
"""Product of any two elements, [256, 256]."""


def _reciprocal(element: int) -> int:
    return _POWER[255 - _EXPONENT[element]]


def generator_matrix(data: int, parity: int) -> Bytes:
    """What each piece consists of, [data + parity, data].

    Args:
        data: pieces of data, k.
        parity: pieces beside them, m.
    """
    rows = np.zeros((data + parity, data), np.uint8)
    rows[:data] = np.eye(data, dtype=np.uint8)
    for row in range(data, data + parity):
        for column in range(data):
            rows[row, column] = _reciprocal(row ^ column)
    return rows


def inverse(matrix: Bytes) -> Bytes:
    """The inverse of a square matrix, by elimination.

    Raises:
        ValueError: it has none.
    """
    size = len(matrix)
    work = np.concatenate([matrix, np.eye(size, dtype=np.uint8)], axis=1)
    for column in range(size):
        pivots = np.flatnonzero(work[column:, column])
        if not len(pivots):
            raise ValueError("the matrix has no inverse")
        pivot = column + int(pivots[0])
        work[[column, pivot]] = work[[pivot, column]]
        work[column] = PRODUCTS[_reciprocal(int(work[column, column])), work[column]]
        for row in range(size):
            if row != column and work[row, column]:
                work[row] ^= PRODUCTS[work[row, column], work[column]]
    return np.ascontiguousarray(work[:, size:])


def recovery(generator: Bytes, present: Sequence[int], wanted: Sequence[int]) -> Bytes:
    """What pieces consist of in terms of k others, [wanted, k].

    Args:
        generator: the matrix of the code.
        present: numbers of k pieces.
        wanted: numbers of the pieces that are to be made.
    """
    of_data = inverse(generator[list(present)])
    rows = np.zeros((len(wanted), len(present)), np.uint8)
    for place, number in enumerate(wanted):
        for column in range(len(present)):
            rows[place] ^= PRODUCTS[generator[number, column], of_data[column]]
    return rows
