"""Does nvcc compile a lowered kernel, and do its values stay in registers?

Without nvcc there is nothing to check, and ``find_nvcc`` says so; no test may call that a success.
A spill is a slow kernel and often a wrong tile shape, so the gate is zero unless a kernel states
its own number.
"""

import re
import shutil
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deepinfer_core.testing.tiles.faults import TileFault
from deepinfer_core.testing.tiles.kept import KeptResults
from deepinfer_core.testing.tiles.lowering import Lowered

__all__ = [
    "CompilationFailed",
    "CubinReport",
    "KernelSpills",
    "compile_cubin",
    "find_nvcc",
    "parse_report",
]

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


class CompilationFailed(TileFault):
    """Nvcc refuses the text that lowering made, or there is no nvcc."""

    code = "compilation_failed"


class KernelSpills(TileFault):
    """A kernel spills more bytes a thread than it states."""

    code = "kernel_spills"


@dataclass(frozen=True, slots=True, kw_only=True)
class CubinReport:
    """What ptxas says about one kernel.

    Attributes:
        kernel: its entry function.
        arch: the architecture of the cubin.
        registers: a thread.
        stack_bytes: stack frame of a thread.
        spill_store_bytes: written to local memory by a thread for want of registers.
        spill_load_bytes: read back.
        static_shared_bytes: a block, known at compile time.
        dynamic_shared_bytes: a block, asked for at launch.
    """

    kernel: str
    arch: str
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_shared_bytes: int
    dynamic_shared_bytes: int = 0

    @property
    def spilled_bytes(self) -> int:
        """Stored or read back by a thread, whichever is more."""
        return max(self.spill_store_bytes, self.spill_load_bytes)

    def require_spills_within(self, bytes_allowed: int = 0) -> None:
        """The gate.

        Raises:
            KernelSpills: stores or loads of spilled registers are more than the kernel states.
        """
        if self.spilled_bytes > bytes_allowed:
            raise KernelSpills(
                f"{self.kernel} on {self.arch} spills {self.spilled_bytes} bytes a thread with"
                f" {self.registers} "
                f"registers; it states at most {bytes_allowed}",
                hint="use more threads or a smaller tile, or state the number and measure it",
            )


def find_nvcc() -> str | None:
    """The path of nvcc, or None: then kernels can be lowered but not compiled."""
    return shutil.which("nvcc")


def compile_cubin(lowered: Lowered, *, kept: KeptResults | None = None) -> CubinReport:
    """Compile CUDA text to a cubin and report what ptxas says.

    Args:
        lowered: for a CUDA architecture.
        kept: where reports of unchanged text are found again.

    Raises:
        CompilationFailed: no nvcc here, or nvcc says no.
    """
    nvcc = find_nvcc()
    if nvcc is None:
        raise CompilationFailed(
            "there is no nvcc on this machine", hint="skip the check and say so in the evidence"
        )
    identity = (nvcc_version(nvcc), lowered.arch, lowered.source)
    found = kept.find("cubin", *identity) if kept is not None else None
    if found is None:
        report = parse_report(run_nvcc(nvcc, lowered), lowered.dynamic_shared_bytes)
        found = asdict(report)
        if kept is not None:
            kept.keep("cubin", *identity, value=found)
    return CubinReport(**found)


def nvcc_version(nvcc: str) -> str:
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return text.splitlines()[-1]


def run_nvcc(nvcc: str, lowered: Lowered) -> str:
    """The words of ptxas about a kernel's text."""
    import tilelang

    root = Path(tilelang.__file__).parent
    number = lowered.arch.removeprefix("sm_")
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "kernel.cu"
        text.write_text(lowered.source, encoding="utf-8")
        command = [
            nvcc, "-std=c++17", "-O3", "-cubin", "-w", "-Xptxas", "-v", "--expt-relaxed-constexpr",
            f"-gencode=arch=compute_{number},code=sm_{number}",
            "-I", str(root / "src"), "-I", str(root / "3rdparty/cutlass/include"),
            str(text), "-o", str(Path(folder) / "kernel.cubin"),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        raise CompilationFailed(
            f"nvcc refuses the text for {lowered.arch}: {' | '.join(errors[:3])[:800]}"
        )
    return done.stderr


def parse_report(words: str, dynamic_shared_bytes: int = 0) -> CubinReport:
    """Read the words of ptxas about one entry function.

    Raises:
        CompilationFailed: they are not about exactly one entry function.
    """
    entries = ENTRY.findall(words)
    spills, registers = SPILLS.findall(words), REGISTERS.findall(words)
    if len(entries) != 1 or len(spills) < 1 or len(registers) != 1:
        found = f"ptxas reports {len(entries)} kernels, expected one"
        raise CompilationFailed(f"{found}: {words[:400]}")
    numbers: dict[str, Any] = dict(
        zip(
            ("stack_bytes", "spill_store_bytes", "spill_load_bytes"),
            (sum(int(row[column]) for row in spills) for column in range(3)),
            strict=True,
        )
    )
    shared = SHARED.findall(words)
    return CubinReport(
        kernel=entries[0][0],
        arch=entries[0][1],
        registers=int(registers[0]),
        static_shared_bytes=int(shared[0]) if shared else 0,
        dynamic_shared_bytes=dynamic_shared_bytes,
        **numbers,
    )
