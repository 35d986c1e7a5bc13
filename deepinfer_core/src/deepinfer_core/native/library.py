"""How do the C sources become a library that Python can call?

Compiled once for each combination of sources, compiler, flags and processor, under a name made of
all of these, into the cache folder of the configuration. A finished library appears there in one
step, so several processes may compile at the same time; the last one to finish replaces equal
contents.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from deepinfer_core.errors import DeviceError
from deepinfer_core.native.compiling import compile_library, find_compiler, library_name, sources

__all__ = ["bind", "open_library"]

_LETTERS = {
    "p": ctypes.c_void_p,
    "l": ctypes.c_int64,
    "d": ctypes.c_double,
    "f": ctypes.c_float,
    "b": ctypes.c_char_p,
}
_CODES = {
    1: ("no memory for its scratch space", "free memory, or lower engine.max_num_batched_tokens"),
    2: ("an index beyond its table", "report this: a component before it chose wrongly"),
}
"""What the codes of ``common.h`` other than ``DI_OK`` mean, and what to do."""


def open_library(cache_dir: str) -> ctypes.CDLL:
    """Load the kernels, compiled if this machine has not compiled them yet.

    Args:
        cache_dir: folder for compiled libraries; made if it is missing.

    Raises:
        DeviceError: there is no compiler, the folder cannot be written, or the sources cannot be
            compiled or loaded; the hint says what to do.
    """
    if not cache_dir:
        raise DeviceError(
            "asked for compiled kernels, found no folder to keep them in",
            hint="set kernels.cache_dir",
        )
    compiler = find_compiler()
    files = sources()
    file = Path(cache_dir) / library_name(compiler, files)
    if not file.exists():
        compile_library(compiler, files, file)
    try:
        return ctypes.CDLL(str(file))
    except OSError as error:
        raise DeviceError(
            f"asked for the kernels in {file}, found that they cannot be loaded: {error}",
            hint="remove the file, or choose another folder with kernels.cache_dir",
        ) from error


def bind(library: ctypes.CDLL, name: str, arguments: str) -> Callable[..., int]:
    """Find one function. A kernel that has a ``DI_CALLED`` line is called without ctypes.

    Args:
        library: from ``open_library``.
        name: of a function that returns a code.
        arguments: one letter each: ``p`` address, ``l`` int64, ``d`` double, ``f`` float, ``b``
            bytes that the kernel reads while it runs (at most one).

    Returns:
        The function; it raises ``DeviceError`` for a code other than ``DI_OK``.
    """
    words = getattr(library, f"{name}_words", None)
    if words is None:
        return _by_ctypes(getattr(library, name), arguments)
    make = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.py_object
    )(("di_callable", library))
    kernel = ctypes.cast(words, ctypes.c_void_p)
    made: Callable[..., int] = make(kernel, name.encode(), arguments.encode(), _failed)
    return made


def _by_ctypes(function: Any, arguments: str) -> Callable[..., int]:
    function.argtypes = [_LETTERS[letter] for letter in arguments]
    function.restype = ctypes.c_int
    function.errcheck = _check
    found: Callable[..., int] = function
    return found


def _check(code: int, function: object, arguments: object) -> int:
    if code:
        _failed(getattr(function, "__name__", "a kernel"), code)
    return code


def _failed(name: str, code: int) -> NoReturn:
    found, hint = _CODES.get(code, (f"the unknown code {code}", "report this"))
    raise DeviceError(f"asked {name} to run, found {found}", hint=hint)
