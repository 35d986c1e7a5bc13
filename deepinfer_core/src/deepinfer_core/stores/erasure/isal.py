"""How is ISA-L called?

The wheel of ``pyeclib`` carries the library (BSD-3-Clause), and its list of files says where. It
is called without that package's own code, which copies each piece behind a header of its own and,
given a damaged one among enough good ones, answers wrong bytes without an error. Here memory is
read and written where it lies. Calls release the interpreter's lock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

import importlib_metadata
import numpy as np

from deepinfer_core.errors import ConfigError
from deepinfer_core.stores.erasure.codec import Codec
from deepinfer_core.stores.erasure.field import Bytes

__all__ = ["IsalCodec", "library_path"]

_PACKAGE = "pyeclib"
_TABLE_BYTES = 32
"""Of a coefficient: from ISA-L's ``erasure_code.h``, ``ec_init_tables``."""


def library_path() -> str | None:
    """File of the library; None: the package is not installed, or carries none."""
    try:
        files = importlib_metadata.distribution(_PACKAGE).files or []
    except importlib_metadata.PackageNotFoundError:
        return None
    return next((str(file.locate()) for file in files if "/libisal" in str(file)), None)


@cache
def _library() -> ctypes.CDLL:
    path = library_path()
    if path is None:
        raise ConfigError(
            "core.erasure was asked for ISA-L, found no wheel of pyeclib that carries it",
            hint='pip install -e "./deepinfer_core[erasure]", or set codec = "numpy" (slow)',
        )
    library = ctypes.CDLL(path)
    library.ec_init_tables.argtypes = [ctypes.c_int, ctypes.c_int, *[ctypes.c_void_p] * 2]
    library.ec_init_tables.restype = None
    library.ec_encode_data.argtypes = [*[ctypes.c_int] * 3, *[ctypes.c_void_p] * 3]
    library.ec_encode_data.restype = None
    return library


class IsalCodec(Codec):
    """By vector instructions.

    Raises:
        ConfigError: the library is not there.
    """

    def __init__(self, data: int, parity: int) -> None:
        self._library = _library()
        super().__init__(data, parity)

    def _prepare(self, rows_MK: Bytes) -> tuple[Bytes, int]:
        rows = np.ascontiguousarray(rows_MK)
        tables = np.zeros(_TABLE_BYTES * rows.size, np.uint8)
        made, data = rows.shape
        self._library.ec_init_tables(data, made, rows.ctypes.data, tables.ctypes.data)
        return tables, tables.ctypes.data

    def _combine(
        self,
        coefficients: tuple[Bytes, int],
        pieces_RF: Bytes,
        sources: Sequence[int],
        into_RF: Bytes,
        made: Sequence[int],
    ) -> None:
        self._library.ec_encode_data(
            pieces_RF.shape[1],
            len(sources),
            len(made),
            coefficients[1],
            _addresses(pieces_RF, sources),
            _addresses(into_RF, made),
        )


def _addresses(rows_RF: Bytes, rows: Sequence[int]) -> ctypes.Array[ctypes.c_void_p]:
    """Where rows begin; each is read and written as a whole, so its bytes lie in a row."""
    base, step = rows_RF.ctypes.data, rows_RF.strides[0]
    return (ctypes.c_void_p * len(rows))(*[base + step * row for row in rows])
