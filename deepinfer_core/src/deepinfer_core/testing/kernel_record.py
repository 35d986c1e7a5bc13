"""Which kernels are what they were when they were last compiled, or measured on a device?

A record is a JSON file: kernel to ``compiled`` and ``measured``, each with the kernel's content of
then. The content is a checksum of everything that its trials are compiled from, which the tile
language's frontend prints: so a changed kernel, tuning, case or compiler loses its entry, and a
changed comment does not.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from deepinfer_core.errors import ConfigError
from deepinfer_core.testing.kernel_trials import trials
from deepinfer_core.whole_files import replace_file

if TYPE_CHECKING:
    from deepinfer_core.interfaces.operators.catalogue import KernelCatalogue

__all__ = ["Rung", "content_of", "entry_of", "read_record", "write_entries"]

Rung = Literal["compiled", "measured"]
Record = dict[str, dict[str, dict[str, str]]]

_DIGITS = 16


def content_of(catalogue: KernelCatalogue, kernel: str) -> str:
    """The checksum of a kernel: text and compiler switches of each function that trials need.

    Args:
        catalogue: of the backend.
        kernel: its name in there.
    """
    import tilelang

    seen, total = set(), hashlib.sha256(str(tilelang.__version__).encode())
    for trial in trials(catalogue, kernel):
        key = (trial.case.spec, trial.tuning)
        if key not in seen:
            seen.add(key)
            switches = sorted(f"{name}={value}" for name, value in trial.pass_configs.items())
            parts = (*switches, trial.function().script(show_meta=True))
            total.update("\0".join(parts).encode())
    return total.hexdigest()[:_DIGITS]


def read_record(path: Path) -> Record:
    """The record; empty if there is none.

    Raises:
        ConfigError: the file cannot be read, or is no such record.
    """
    try:
        record: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _no_record(path, error.strerror or str(error)) from error
    except ValueError as error:
        raise _no_record(path, f"no JSON: {error}") from error
    _require_object(path, record, "the file")
    for kernel, rungs in record.items():
        _require_object(path, rungs, kernel)
        for rung, entry in rungs.items():
            _require_object(path, entry, f"{kernel}.{rung}")
            for name, value in entry.items():
                if not isinstance(value, str):
                    raise _no_record(path, f"no text in {kernel}.{rung}.{name}")
            if "content" not in entry:
                raise _no_record(path, f"no content in {kernel}.{rung}")
    found: Record = record
    return found


def _require_object(path: Path, value: object, what: str) -> None:
    if not isinstance(value, dict):
        raise _no_record(path, f"{what} is no object")


def _no_record(path: Path, found: str) -> ConfigError:
    return ConfigError(
        f"asked for the record of kernels in {path}, found {found}",
        hint="name a file that bench kernels --record wrote, or a new one",
    )


def entry_of(record: Record, kernel: str, rung: Rung, content: str) -> tuple[dict[str, str], bool]:
    """What is recorded, empty if nothing is; and whether the kernel is still what it was.

    Args:
        record: of the backend.
        kernel: a name.
        rung: what was done with it.
        content: of the kernel now.
    """
    entry = record.get(kernel, {}).get(rung, {})
    return entry, entry.get("content") == content


def write_entries(path: Path, rung: Rung, entries: dict[str, dict[str, Any]]) -> None:
    """Put entries into a record; other kernels and rungs stay, and no reader sees half of it.

    Args:
        path: of the record; made if there is none.
        rung: what was done.
        entries: by kernel; each with its ``content``.
    """
    record = read_record(path)
    for kernel, entry in entries.items():
        record.setdefault(kernel, {})[rung] = entry
    text = json.dumps(dict(sorted(record.items())), indent=1)
    replace_file(path, text + "\n")
