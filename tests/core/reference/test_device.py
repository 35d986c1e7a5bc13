"""Does the CPU refuse memory that it does not have, before the system kills the process?"""

import pytest
import torch
from deepinfer_core.errors import DeviceError
from deepinfer_core.interfaces.device import DeviceMemory
from deepinfer_core.plugin.cpu_facts import cpu_facts
from deepinfer_core.reference import device
from deepinfer_core.reference.device import CpuDevice


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> CpuDevice:
    """A machine with 1000 bytes, of which 100 are free."""
    memory = DeviceMemory(total_bytes=1000, free_bytes=100)
    monkeypatch.setattr(device, "process_memory", lambda: memory)
    return CpuDevice()


@pytest.mark.parametrize("wanted", [0, 99, 100])
def test_memory_up_to_what_is_free_is_given(cpu: CpuDevice, wanted: int):
    assert cpu.zeros((wanted,), torch.uint8).nbytes == wanted


@pytest.mark.parametrize(("shape", "dtype"), [((101,), torch.uint8), ((2, 13), torch.float32)])
def test_more_than_what_is_free_is_refused(cpu: CpuDevice, shape: tuple[int, ...], dtype):
    with pytest.raises(DeviceError, match="found 100 bytes free"):
        cpu.zeros(shape, dtype)


def test_facts_are_those_of_the_facts_program_and_torch():
    facts = CpuDevice().facts()
    assert facts["threads"] == cpu_facts()["threads"]
    assert facts["instruction_sets"].split() == cpu_facts()["instruction_sets"]
    assert facts["torch"] == torch.__version__
