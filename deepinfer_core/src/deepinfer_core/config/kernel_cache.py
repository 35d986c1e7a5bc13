"""In which folder are compiled kernels kept?"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from deepinfer_core.config.environment import cache_home
from deepinfer_core.errors import ConfigError

__all__ = ["kernel_cache_folder", "require_writable"]


def kernel_cache_folder(path: str | None = None, environ: Mapping[str, str] | None = None) -> str:
    """The folder, which may not exist yet.

    Args:
        path: ``kernels.cache_dir`` of the settings; None takes ``deepinfer/kernels`` in the user's
            cache folder.
        environ: None reads the process environment.

    Returns:
        Empty if nobody names a folder and the user has no home.

    Raises:
        ConfigError: ``path`` begins with the home of an unknown user.
    """
    if path is None:
        home = cache_home(environ)
        return "" if home is None else str(home / "deepinfer" / "kernels")
    try:
        return str(Path(path).expanduser())
    except RuntimeError as error:
        raise ConfigError(
            f"kernels.cache_dir is {path}, found no such user or home", hint="write the folder out"
        ) from error


def require_writable(folder: str) -> None:
    """Make the folder if there is none, and write into it what is gone again at once.

    Args:
        folder: of ``kernel_cache_folder``.

    Raises:
        ConfigError: one of both cannot be done.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        is_file = isinstance(error, FileExistsError | NotADirectoryError)
        found = "a file where a folder must be" if is_file else error.strerror or str(error)
        raise ConfigError(
            f"asked to keep kernels in kernels.cache_dir = {folder}, found {found}",
            hint="name a folder that can be written: --set kernels.cache_dir=FOLDER",
        ) from error
