"""Which kernels are unchanged since they were lowered or compiled?

Results are files named by a checksum of everything that they follow from, so a changed kernel,
compiler or switch is never mistaken for an old one, and nothing has to be invalidated.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from deepinfer_core.whole_files import replace_file

__all__ = ["KeptResults"]


class KeptResults:
    """A folder of results by content.

    Args:
        folder: made when the first result is kept.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, kind: str, *identity: str) -> Path:
        """Where the result of this identity is, or would be."""
        text = "\0".join((kind, *identity))
        return self.folder / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()}.json"

    def find(self, kind: str, *identity: str) -> Any | None:
        """The kept result, or None."""
        try:
            return json.loads(self.path(kind, *identity).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def keep(self, kind: str, *identity: str, value: Any) -> None:
        """Keep a result; a reader never sees half of it."""
        path = self.path(kind, *identity)
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(value))
