"""What is there to choose among on a device, for those who measure it?"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from deepinfer_core.interfaces.operators.tunings import KernelTunings, SpecChoices, TunedKernel

from deepinfer_nvidia.kernels.choice import Target, choose, measured_for
from deepinfer_nvidia.kernels.product_times import fitting
from deepinfer_nvidia.kernels.tuning.choices import SPECS, parts_in, text_with
from deepinfer_nvidia.kernels.tuning.table import shipped_table, shipped_text

__all__ = ["DeviceTunings"]


class DeviceTunings(KernelTunings):
    """The table's, and what files of kernels propose.

    Args:
        target: the device.
    """

    def __init__(self, target: Target) -> None:
        self._target = target

    @property
    def operators(self) -> tuple[str, ...]:
        """Products: the others have one tuning, or one for each kind of call."""
        return tuple(SPECS)

    def candidates(self, operator: str, spec: Any) -> Sequence[TunedKernel]:
        """Rated ones that divide K as the widths say, those chosen now, and what is proposed."""
        measured = measured_for(operator, spec, self._target)
        listed = [
            TunedKernel(kernel=one.kernel, tuning=one.tuning)
            for one in fitting(operator, measured, spec)
        ]
        chosen = [one.choice for one in shipped_table().choices.get((operator, spec), ())]
        kernels = dict.fromkeys(one.kernel for one in measured)
        proposed = [
            TunedKernel(kernel=kernel, tuning=tuning)
            for kernel in kernels
            for tuning in _proposed(kernel, spec)
        ]
        return tuple(dict.fromkeys(self._here(one) for one in (*listed, *chosen, *proposed)))

    def picked(self, operator: str, spec: Any, rows: int) -> TunedKernel:
        """As launches choose."""
        choice = choose(operator, spec, self._target, rows)
        return TunedKernel(kernel=choice.kernel, tuning=choice.tuning)

    def bits(self, one: TunedKernel) -> Hashable:
        """Parts of K."""
        return parts_in(one.tuning)

    def table(
        self, choices: Sequence[SpecChoices], *, hardware: str, date: str, commit: str
    ) -> str:
        """The shipped lists, and these choices."""
        return text_with(shipped_text(), choices, hardware=hardware, date=date, commit=commit)

    def _here(self, one: TunedKernel) -> TunedKernel:
        if not hasattr(one.tuning, "cores"):
            return one
        return replace(one, tuning=replace(one.tuning, cores=self._target.cores))


def _proposed(kernel: str, spec: Any) -> tuple[Any, ...]:
    """What the kernel's own file wants to be measured."""
    package = __package__.rpartition(".")[0]
    module = import_module(f"{package}.{kernel.replace('/', '.')}")
    candidates = getattr(module, "candidates", None)
    return candidates(spec) if candidates else ()
