"""Program: which NVIDIA devices may this process use? Prints one JSON object.

With ``--arch`` it describes a device of that architecture instead, which need not be here.

The driver's library is asked directly: that opens no context, imports nothing heavy, and works
whatever torch was built for. The first device stands for all. What goes wrong becomes a sentence
in ``problem``, with what to do in ``fix``.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import re
import runpy
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

__all__ = ["Driver", "DriverProblem", "absent_facts", "device_facts", "open_driver"]

_LIBRARY = "libcuda.so.1"
_VERSION_FILE = Path("/proc/driver/nvidia/version")
_COMPILER_FOLDERS = ("/usr/local/cuda/bin",)

# Numbers of the attributes in cuda.h.
_CORES = 16
_CLOCK_KHZ = 13
_L2_BYTES = 38
_MAJOR, _MINOR = 75, 76
_SHARED_BYTES = 97

_ARCHITECTURES: dict[str, tuple[tuple[int, int], int]] = {
    "sm_90a": ((9, 0), 132),
    "sm_100a": ((10, 0), 148),
}
"""Capability, and multiprocessors of the usual devices: H100 and H200 as SXM modules, and B200."""


class DriverProblem(Exception):
    """Why there is no device.

    Args:
        problem: what was found.
        fix: what to do.
    """

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.fix = fix


class Driver(Protocol):
    """What is asked of the driver; every call may raise ``DriverProblem``."""

    def count(self) -> int:
        """Devices that this process may use."""

    def cuda_version(self) -> str:
        """Newest CUDA version that the driver runs, e.g. ``13.0``."""

    def name(self, device: int) -> str:
        """Marketing name."""

    def memory_bytes(self, device: int) -> int:
        """Memory of one device."""

    def attribute(self, number: int, device: int) -> int:
        """One number of ``CUdevice_attribute``."""


def device_facts(driver: Driver) -> dict[str, Any]:
    """Facts in the form of ``DeviceFacts``, with versions and sizes beside them.

    Raises:
        DriverProblem: the driver has no device, or failed.
    """
    count = driver.count()
    if not count:
        raise DriverProblem(
            "the NVIDIA driver shows this process no device",
            "start it where a GPU is; CUDA_VISIBLE_DEVICES may hide one",
        )
    nvcc = _compiler()
    return {
        "device": "nvidia",
        "model": driver.name(0),
        "count": count,
        "capability": [driver.attribute(_MAJOR, 0), driver.attribute(_MINOR, 0)],
        "memory_bytes": driver.memory_bytes(0),
        "cores": driver.attribute(_CORES, 0),
        "l2_bytes": driver.attribute(_L2_BYTES, 0),
        "shared_bytes": driver.attribute(_SHARED_BYTES, 0),
        "clock_hz": driver.attribute(_CLOCK_KHZ, 0) * 1000,
        "driver": _driver_version(_VERSION_FILE),
        "driver_cuda": driver.cuda_version(),
        "torch_cuda": _torch_cuda(),
        "nvcc": nvcc,
        "compiler": _versions(nvcc),
    }


def absent_facts(arch: str, cores: int) -> dict[str, Any]:
    """Facts of a device that is only described.

    Args:
        arch: a key of ``_ARCHITECTURES``.
        cores: streaming multiprocessors; 0: the usual number.

    Raises:
        DriverProblem: no kernels are written for the architecture.
    """
    if arch not in _ARCHITECTURES:
        raise DriverProblem(
            f"no kernels are written for {arch}", f"name one of {', '.join(_ARCHITECTURES)}"
        )
    capability, usual = _ARCHITECTURES[arch]
    return {
        "device": "nvidia",
        "model": f"{arch} with {cores or usual} cores",
        "count": 1,
        "capability": list(capability),
        "cores": cores or usual,
        "is_absent": True,
        "nvcc": _compiler(),
    }


def open_driver(library: str = _LIBRARY) -> Driver:
    """The driver of this machine, initialised.

    Raises:
        DriverProblem: there is none, or it does not start.
    """
    try:
        return _CudaDriver(ctypes.CDLL(library))
    except OSError:
        raise DriverProblem(
            f"no NVIDIA driver ({library} cannot be loaded)",
            "install the NVIDIA driver; start a container with access to the GPUs",
        ) from None


class _CudaDriver:
    """The driver's own library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._call("cuInit", 0)

    def count(self) -> int:
        return self._number("cuDeviceGetCount")

    def cuda_version(self) -> str:
        version = self._number("cuDriverGetVersion")
        return f"{version // 1000}.{version % 1000 // 10}"

    def name(self, device: int) -> str:
        text = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", text, len(text), device)
        return text.value.decode("utf-8", "replace")

    def memory_bytes(self, device: int) -> int:
        size = ctypes.c_size_t()
        self._call("cuDeviceTotalMem_v2", ctypes.byref(size), device)
        return size.value

    def attribute(self, number: int, device: int) -> int:
        return self._number("cuDeviceGetAttribute", number, device)

    def _number(self, function: str, *arguments: int) -> int:
        out = ctypes.c_int()
        self._call(function, ctypes.byref(out), *arguments)
        return out.value

    def _call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._library, function)(*arguments)
        if code == _NO_DEVICE:
            raise DriverProblem(
                "the NVIDIA driver finds no device",
                "start it where a GPU is; CUDA_VISIBLE_DEVICES may hide one",
            )
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(code, ctypes.byref(text))
            found = (text.value or b"unknown").decode("utf-8", "replace")
            raise DriverProblem(
                f"{function} of the NVIDIA driver failed with {code}: {found}",
                "nvidia-smi must work first; it names what is wrong with the driver",
            )


_NO_DEVICE = 100


def _driver_version(file: Path) -> str:
    """Version of the kernel module; empty where it is not shown."""
    try:
        first = file.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except OSError:
        return ""
    found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", first)
    return found.group(1) if found else ""


def _torch_cuda() -> str:
    """CUDA version that torch was built for; empty without torch, or for a build without CUDA."""
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:
        return ""
    file = Path(torch.origin).parent / "version.py"
    try:
        return str(runpy.run_path(str(file)).get("cuda") or "")
    except Exception:  # noqa: BLE001 - a damaged installation is the same as none
        return ""


def _compiler() -> str:
    """The CUDA compiler, on the search path or where its installer puts it; empty: none."""
    folders = (None, *_COMPILER_FOLDERS)
    return next(filter(None, (shutil.which("nvcc", path=folder) for folder in folders)), "")


def _versions(nvcc: str) -> str:
    """Releases of what compiles kernels: bits may change with them."""
    try:
        tilelang = version("tilelang")
    except PackageNotFoundError:
        tilelang = "none"
    return f"tilelang {tilelang}, nvcc {_nvcc_release(nvcc)}"


def _nvcc_release(nvcc: str) -> str:
    if not nvcc:
        return "none"
    try:
        told = subprocess.run(
            [nvcc, "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    found = re.search(r"release \S+, V(\S+)", told.stdout)
    return found.group(1) if found else "unknown"


def _answer() -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--arch", default="")
    parser.add_argument("--cores", type=int, default=0)
    asked = parser.parse_args()
    try:
        if asked.arch:
            return absent_facts(asked.arch, asked.cores)
        return device_facts(open_driver())
    except DriverProblem as problem:
        return {"device": "nvidia", "problem": problem.problem, "fix": problem.fix}


if __name__ == "__main__":
    print(json.dumps(_answer()))  # noqa: T201 - this is the program's answer
