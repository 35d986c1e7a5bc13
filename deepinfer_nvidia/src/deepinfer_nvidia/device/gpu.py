"""For which GPU are components built: the one of this process, or one that is only described?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from deepinfer_core.plugin import BuildContext

__all__ = ["Gpu", "current_gpu", "gpu_of"]

_HOPPER = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """What kernels are chosen and compiled by.

    Attributes:
        capability: version of the instruction set.
        cores: streaming multiprocessors.
        torch_device: where tensors live.
    """

    capability: tuple[int, int]
    cores: int
    torch_device: str

    @property
    def arch(self) -> str:
        """What kernels are compiled for; ``a``: its own instructions, no later device."""
        return "sm_{}{}a".format(*self.capability)

    @property
    def is_hopper(self) -> bool:
        """Whether kernels that are written for Hopper alone run."""
        return self.capability[0] == _HOPPER


def gpu_of(context: BuildContext) -> Gpu:
    """The current device, or in a rehearsal what the facts say about it."""
    if context.rehearsal is None:
        return current_gpu()
    major, minor = context.facts.capability[:2]
    return Gpu(capability=(major, minor), cores=context.facts.cores, torch_device="meta")


def current_gpu() -> Gpu:
    """The current device of this thread."""
    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    return Gpu(
        capability=(found.major, found.minor),
        cores=found.multi_processor_count,
        torch_device="cuda",
    )
