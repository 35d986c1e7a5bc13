"""Do the facts tell the device, and does a driver that fails leave a sentence?"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deepinfer_core.plugin import DeviceFacts, DeviceTarget
from deepinfer_core.plugin.facts import read_facts
from deepinfer_nvidia.facts import DriverProblem, absent_facts, device_facts, open_driver

from deepinfer_nvidia import facts


class Driver:
    """A driver of one H200."""

    devices = 1

    def count(self) -> int:
        return self.devices

    def cuda_version(self) -> str:
        return "13.0"

    def name(self, device: int) -> str:
        return "NVIDIA H200"

    def memory_bytes(self, device: int) -> int:
        return 150 << 30

    def attribute(self, number: int, device: int) -> int:
        return {16: 132, 13: 1980000, 38: 60 << 20, 75: 9, 76: 0, 97: 232448}[number]


def test_the_facts_are_those_of_the_first_device() -> None:
    found = DeviceFacts.from_json(json.loads(json.dumps(device_facts(Driver()))))
    assert (found.device, found.model, found.count) == ("nvidia", "NVIDIA H200", 1)
    assert (found.capability, found.cores, found.memory_bytes) == ((9, 0), 132, 150 << 30)
    assert found.extra["l2_bytes"] == 60 << 20
    assert found.extra["clock_hz"] == 1_980_000_000
    assert found.extra["driver_cuda"] == "13.0"
    assert (found.problem, found.fix) == ("", "")


def test_a_driver_without_a_device_is_a_problem_that_can_be_fixed() -> None:
    driver = Driver()
    driver.devices = 0
    with pytest.raises(DriverProblem, match="shows this process no device") as raised:
        device_facts(driver)
    assert "CUDA_VISIBLE_DEVICES" in raised.value.fix


def test_a_machine_without_a_driver_says_so() -> None:
    with pytest.raises(DriverProblem, match=r"no NVIDIA driver \(libabsent.so.1 cannot") as raised:
        open_driver("libabsent.so.1")
    assert "install the NVIDIA driver" in raised.value.fix


SOURCE = """
#include <stddef.h>
int cuInit(unsigned flags) {{ return {init}; }}
int cuGetErrorString(int code, const char **text) {{ *text = "broken on purpose"; return 0; }}
int cuDeviceGetCount(int *n) {{ *n = 2; return {count}; }}
int cuDriverGetVersion(int *n) {{ *n = 12080; return 0; }}
int cuDeviceGetName(char *text, int n, int device) {{ text[0] = 'G'; text[1] = 0; return 0; }}
int cuDeviceTotalMem_v2(size_t *n, int device) {{ *n = 1ull << 40; return 0; }}
int cuDeviceGetAttribute(int *n, int which, int device) {{ *n = which; return 0; }}
"""


def library(folder: Path, init: int = 0, count: int = 0) -> str:
    """A driver of our own, compiled."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler, to build a driver")
    source, file = folder / "cuda.c", folder / "libcuda.so"
    source.write_text(SOURCE.format(init=init, count=count))
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(file), str(source)], check=True)
    return str(file)


def test_the_library_of_the_driver_is_asked(tmp_path: Path) -> None:
    found = device_facts(open_driver(library(tmp_path)))
    assert (found["count"], found["model"], found["memory_bytes"]) == (2, "G", 1 << 40)
    assert (found["capability"], found["cores"], found["driver_cuda"]) == ([75, 76], 16, "12.8")


@pytest.mark.parametrize(
    ("codes", "problem"),
    [
        ({"init": 100}, "the NVIDIA driver finds no device"),
        ({"init": 803}, "cuInit of the NVIDIA driver failed with 803: broken on purpose"),
        (
            {"count": 999},
            "cuDeviceGetCount of the NVIDIA driver failed with 999: broken on purpose",
        ),
    ],
)
def test_a_code_of_the_driver_becomes_a_sentence(
    tmp_path: Path, codes: dict[str, int], problem: str
) -> None:
    with pytest.raises(DriverProblem) as raised:
        device_facts(open_driver(library(tmp_path, **codes)))
    assert raised.value.problem == problem
    assert raised.value.fix


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159  Tue\nGCC version: 13",
            "580.159",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release",
            "570.86.15",
        ),
        ("something else", ""),
    ],
)
def test_the_version_of_the_kernel_module_is_read(tmp_path: Path, text: str, version: str) -> None:
    (tmp_path / "version").write_text(text)
    assert facts._driver_version(tmp_path / "version") == version


def test_a_kernel_module_that_is_not_shown_has_no_version(tmp_path: Path) -> None:
    assert facts._driver_version(tmp_path / "absent") == ""


def test_the_program_prints_facts_or_a_problem_with_what_to_do() -> None:
    found = read_facts("nvidia", "deepinfer_nvidia.facts", 60.0)
    assert found.device == "nvidia"
    assert bool(found.count) != bool(found.problem)
    assert bool(found.fix) == bool(found.problem)


def test_the_program_imports_nothing_heavy() -> None:
    code = "import sys, deepinfer_nvidia.facts; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "tilelang", "pydantic"} & set(done.stdout.split())


@pytest.mark.parametrize(
    ("arch", "asked", "capability", "cores"),
    [("sm_90a", 0, (9, 0), 132), ("sm_90a", 114, (9, 0), 114), ("sm_100a", 0, (10, 0), 148)],
)
def test_a_device_that_is_not_here_has_facts_too(
    arch: str, asked: int, capability: tuple[int, int], cores: int
) -> None:
    found = read_facts(
        "nvidia", "deepinfer_nvidia.facts", 30.0, DeviceTarget(arch=arch, cores=asked)
    )
    assert (found.capability, found.cores, found.problem) == (capability, cores, "")
    assert found.model == f"{arch} with {cores} cores"


def test_an_architecture_without_kernels_is_a_problem() -> None:
    with pytest.raises(DriverProblem) as raised:
        absent_facts("sm_80", 0)
    assert (raised.value.problem, raised.value.fix) == (
        "no kernels are written for sm_80", "name one of sm_90a, sm_100a",
    )  # fmt: skip
