"""How does launch code get from a kernel's file to a running kernel?

``CompiledKernels`` compiles for a device, or finds in a folder what was compiled before: at an
earlier start, or ahead of time, which is the same call in another process. The tile interpreter of
``deepinfer_core.testing.tiles`` brings another ``Kernels``, which runs the same launch code on a
CPU.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, cast

from deepinfer_core.errors import DeviceError
from deepinfer_core.interfaces.operators.catalogue import Build, Kernels
from deepinfer_core.interfaces.operators.rehearsal import NotedKernels
from deepinfer_core.interfaces.operators.wanted import KernelCompiler
from deepinfer_core.plugin import BuildContext

from deepinfer_nvidia.device.gpu import gpu_of
from deepinfer_nvidia.kernels.kept import KeptKernels
from deepinfer_nvidia.probe import kernel_folder

if TYPE_CHECKING:
    import torch

    from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["KEPT_FORMS", "CompiledKernels", "TileLangCompiler", "Wanted", "kernels_for", "launches"]

Form = ParamSpec("Form")
"""What a kernel is compiled for, of an operator's arguments."""

KEPT_FORMS = 4096
"""Forms name numbers of rows where tiles follow from them; others are few."""

Wanted = tuple[Build, Any, Any]
"""A kernel: ``build`` of its file, spec and tuning."""


@dataclass(frozen=True)
class TileLangCompiler(KernelCompiler):
    """Compiles with TileLang, which keeps what it makes by the kernel's text and its own release.

    Args:
        arch: ``sm_90a`` or ``sm_100a``.
        folder: where kernels are kept; None leaves that to TileLang.
    """

    arch: str
    folder: Path | None = None

    def keeps(self, build: Build, spec: Any, tuning: KernelTuning) -> bool:
        """Whether the folder has this kernel, whole."""
        return self.folder is not None and self._kept(self.folder).has(build, spec, tuning)

    def keep(self, build: Build, spec: Any, tuning: KernelTuning) -> None:
        """See to it that the folder has this kernel.

        Raises:
            DeviceError: there is no folder, or the kernel could not be written there.
            Exception: whatever the compiler raises; its own words come last.
        """
        self.load(build, spec, tuning)
        if not self.keeps(build, spec, tuning):
            raise DeviceError(
                f"asked to keep a compiled kernel in {self.folder}, found none there afterwards",
                hint="the folder must be writable and have room: kernels.cache_dir",
            )

    def load(
        self, build: Build, spec: Any, tuning: KernelTuning
    ) -> tuple[Callable[..., None], tuple[str, ...]]:
        """Compile a kernel, or find it; its function, and the names of its arguments in order."""
        import tilelang

        _take_log()
        if self.folder is not None:
            _use_folder(self.folder)
            self._kept(self.folder).check(build, spec, tuning)
        function = build(spec, tuning)
        kernel = tilelang.compile(
            function,
            target={"kind": "cuda", "arch": self.arch},
            execution_backend="tvm_ffi",
            pass_configs=dict(tuning.pass_configs),
        )
        if self.folder is not None:
            entry = Path(str(getattr(kernel, "_tilelang_cache_path", "")))
            self._kept(self.folder).note(build, spec, tuning, entry)
        return _function(kernel), tuple(
            function.buffer_map[handle].name for handle in function.params
        )

    def _kept(self, folder: Path) -> KeptKernels:
        return KeptKernels(folder, self.arch)


class CompiledKernels(Kernels):
    """Compiles or loads each kernel when it is first called, and has it ready from then on.

    Args:
        arch: ``sm_90a`` or ``sm_100a``.
        folder: where kernels are kept; None leaves that to TileLang.

    Attributes:
        compiled: kernels built so far, in order; those after the warm-up were late.
    """

    def __init__(self, arch: str, folder: Path | None = None) -> None:
        self.compiled: list[str] = []
        self._compiler = TileLangCompiler(arch, folder)
        self._kernels: dict[tuple[Build, Any, KernelTuning], Callable[..., None]] = {}

    @property
    def built(self) -> int:
        """Kernels that were compiled or loaded so far."""
        return len(self.compiled)

    @property
    def compiler(self) -> TileLangCompiler:
        """Compiles kernels to where these are found."""
        return self._compiler

    def call(
        self, build: Build, spec: Any, tuning: KernelTuning, /, **tensors: torch.Tensor
    ) -> None:
        """Launch; the first call of a kernel compiles it."""
        self.prepared(build, spec, tuning)(**tensors)

    def prepared(self, build: Build, spec: Any, tuning: KernelTuning) -> Callable[..., None]:
        """One kernel; whoever calls it often keeps what this returns."""
        found = self._kernels.get((build, spec, tuning))
        if found is None:
            found = _launch(*self._compiler.load(build, spec, tuning))
            self._kernels[build, spec, tuning] = found
            self.compiled.append(build.__module__.rpartition(".")[2])
        return found


def kernels_for(context: BuildContext) -> Kernels:
    """What a component runs its kernels with.

    Args:
        context: of its factory.
    """
    arch, folder = gpu_of(context).arch, kernel_folder(context.cache_dir)
    if context.rehearsal is not None:
        return NotedKernels(context.rehearsal, TileLangCompiler(arch, folder))
    return CompiledKernels(arch, folder)


def launches(kernels: Kernels, find: Callable[Form, Wanted]) -> Callable[Form, Callable[..., None]]:
    """Ask once for each form of arguments which kernel they need.

    Specs and tunings are objects that cost more to make and compare than a launch does.

    Args:
        kernels: has the kernels.
        find: from a form, whatever a kernel is compiled for, to the kernel.

    Returns:
        From a form to what launches its kernel, given the tensors by name.
    """

    def prepared(*form: Form.args, **named: Form.kwargs) -> Callable[..., None]:
        return kernels.prepared(*find(*form, **named))

    return cast("Callable[Form, Callable[..., None]]", lru_cache(maxsize=KEPT_FORMS)(prepared))


def _launch(function: Callable[..., None], names: tuple[str, ...]) -> Callable[..., None]:
    """Call a kernel's function with its tensors in order."""
    in_order = itemgetter(*names)

    def launch(**tensors: torch.Tensor) -> None:
        function(*in_order(tensors))

    return launch


def _function(kernel: Any) -> Callable[..., None]:
    """The function of a kernel that checks its arguments and launches, in native code.

    TileLang's own call looks for outputs to allocate and for the function, each time; no kernel
    here has outputs that are not arguments.
    """
    executable = kernel.adapter.get_exportable_executable()
    # What was compiled just now has to be linked; what was found in the folder is a module.
    module = executable.jit() if hasattr(executable, "jit") else executable
    function: Callable[..., None] = module.main
    return function


def _use_folder(folder: Path) -> None:
    """One setting of the process, read at each compilation: engines may have their own."""
    import tilelang

    tilelang.env.TILELANG_CACHE_DIR = str(folder)


def _take_log() -> None:
    """Let TileLang log like everything else; its handler writes among answers on standard output.

    Errors only: its warnings are for authors of kernels, who meet them in the interpreter.
    """
    log = logging.getLogger("tilelang")
    for handler in list(log.handlers):
        log.removeHandler(handler)
    log.setLevel(logging.ERROR)
    log.propagate = True
