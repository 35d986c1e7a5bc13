"""What does a kernel depend on besides its spec?"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KernelTuning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTuning:
    """Choices of one backend that change how fast a kernel is, never what it computes.

    Kernels extend it with tiles, stages and the like.

    Attributes:
        threads: threads of a block.
        pass_configs: names and values of TileLang compiler switches.
    """

    threads: int = 128
    pass_configs: tuple[tuple[str, bool | int | str], ...] = ()
