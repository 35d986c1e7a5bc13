"""What would ``hf3fs_py_usrbio`` do? The same calls, on plain files, in this process.

    fake = FakeUsrbio(tmp_path, habits=Habits(seed=1))
    store = ThreefsStore(..., medium=UsrbioMedium(library=fake))

It keeps what the published library says and does (deepseek-ai/3FS, ``src/lib/api``,
``src/lib/py/usrbio_binding.cc`` and ``src/fuse``):

* An operation may begin as soon as it is prepared; submitting only hints.
* ``io_depth`` 0: whatever is there is begun. Above 0: exactly so many at once, and nothing before.
  Below 0: at most so many at once, after ``timeout`` milliseconds also fewer.
* They end in any order. A ring has room for ``entries`` of them until they are waited for.
* Results are bytes or an ``errno`` below zero, fewer bytes at the end of a file or at a hole.
* Memory is known by a symbolic link of the mount; no operation crosses a border of its blocks.
* Numbers of descriptors are registered, until deregistered before they are closed.
* The caller keeps ``userdata`` alive.

Not like it: memory is not looked at through ``iovec`` (that needs a buffer protocol in Python),
``numa`` and ``priority`` do nothing, and what the library would never answer raises
``AssertionError``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any

from deepinfer_threefs.medium import PosixMedium
from deepinfer_threefs.testing.fake_rings import (
    FORBID_HOLES,
    FakeIoring,
    FakeIovec,
    FakeMount,
    Habits,
)

__all__ = ["FORBID_HOLES", "FakeIoring", "FakeIovec", "FakeUsrbio", "Habits"]

_MOST_RANGES = 1000


class FakeUsrbio(FakeMount):
    """The module, for one mount, below which ``3fs-virt/iovs`` is made."""

    def __init__(self, mount: str | os.PathLike[str], habits: Habits | None = None) -> None:
        super().__init__(mount, habits)
        os.makedirs(f"{self.mount}/3fs-virt/iovs", exist_ok=True)

    def iovec(self, *args: Any, **options: Any) -> FakeIovec:
        """See ``FakeIovec``."""
        return FakeIovec(self, *args, **options)

    def ioring(self, *args: Any, **options: Any) -> FakeIoring:
        """See ``FakeIoring``."""
        return FakeIoring(self, *args, **options)

    def extract_mount_point(self, path: str) -> str | None:
        """The mount that a path is on; None: none of 3FS."""
        real = os.path.realpath(path, strict=True)
        return self.mount if real == self.mount or real.startswith(self.mount + "/") else None

    def register_fd(self, fd: int, flags: int = 0) -> None:
        """See ``FakeFiles.register``."""
        self.files.register(fd)

    def deregister_fd(self, fd: int) -> None:
        """See ``FakeFiles.deregister``."""
        self.files.deregister(fd)

    def force_fsync(self, fd: int) -> int:
        """See ``FakeFiles.force_fsync``."""
        return self.files.force_fsync(fd)

    def hardlink(self, target: str, link_name: str) -> None:
        """A second name of a file."""
        os.link(target, link_name)

    def punch_hole(self, fd: int, start: Sequence[int], end: Sequence[int], flags: int = 0) -> None:
        """Make holes of whole chunks.

        Raises:
            RuntimeError: too many of them.
            OSError: ``EINVAL``: an end is not one of a chunk.
        """
        if len(start) != len(end) or len(start) > _MOST_RANGES:
            raise RuntimeError("size not equal")
        if any(at % self.habits.chunk_bytes for at in (*start, *end)):
            raise OSError(errno.EINVAL, "not of whole chunks")
        PosixMedium().punch(fd, list(zip(start, end, strict=True)))
