"""How does a small file come to be so that no reader ever sees half of it?

It is written beside its place under a name of its own and then takes the place of what was there.
Backends and plugins use this too, for what they keep.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

__all__ = ["replace_file"]


def replace_file(path: Path, text: str) -> None:
    """Write a text file in one piece; what was there before stays if anything fails.

    Several processes may write the same file: the last one wins.

    Args:
        path: in a folder that exists.
        text: written as UTF-8.

    Raises:
        OSError: the folder is missing, or cannot be written.
    """
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # a name must not outlive a crash that its bytes do not
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
