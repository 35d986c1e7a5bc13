"""Does nvidia.cuda keep the contract of device?"""

import mmap

import pytest
import torch
from deepinfer_core.errors import DeviceError
from deepinfer_core.testing.contracts import DeviceContract
from deepinfer_nvidia.device.cuda import CudaDevice
from deepinfer_nvidia.facts import device_facts, open_driver


class TestCudaDevice(DeviceContract):
    device = "cuda"

    @pytest.fixture
    def component(self, cuda: CudaDevice) -> CudaDevice:
        return cuda


def test_a_host_buffer_is_pinned(cuda: CudaDevice) -> None:
    assert cuda.host_buffer((4,), torch.int64).is_pinned()


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(DeviceError, match="asked for CUDA device 99, found"):
        CudaDevice(99)


def test_the_facts_program_and_the_device_agree(cuda: CudaDevice) -> None:
    asked, found = device_facts(open_driver()), cuda.facts()
    assert ".".join(map(str, asked["capability"])) == found["capability"]
    assert (asked["model"], asked["cores"]) == (found["model"], found["cores"])
    assert asked["l2_bytes"] == found["l2_bytes"]


def test_a_reachable_table_stays_on_the_host(cuda: CudaDevice) -> None:
    before = torch.cuda.memory_allocated()
    table = cuda.reachable(torch.ones(1 << 24, dtype=torch.uint8))
    assert torch.cuda.memory_allocated() - before < 1 << 20
    assert int(table[-7:].sum()) == 7


def test_waiting_for_an_event_leaves_later_work_running(cuda: CudaDevice) -> None:
    x = cuda.zeros((1 << 26,), torch.float32)
    stream = cuda.stream()

    def long() -> None:
        for _ in range(200):
            x.add_(1)

    first, second = stream.submit(lambda: None), stream.submit(long)
    first.wait()
    assert not second._end.query()  # type: ignore[attr-defined]
    stream.close()


def test_work_can_be_recorded_after_all_graphs_are_gone(cuda: CudaDevice) -> None:
    x = cuda.zeros((4,), torch.float32)
    x.add_(1)
    for _ in range(2):
        recording = cuda.recorder.record(lambda: x.add_(1))
        del recording
    cuda.synchronise()
    assert x.tolist() == [3.0] * 4


def test_copies_of_pinned_memory_do_not_hold_up_the_host(cuda: CudaDevice) -> None:
    memory = mmap.mmap(-1, 1 << 20)  # as two processes share it
    host_B = torch.frombuffer(memory, dtype=torch.uint8)
    there_B = cuda.zeros((1 << 20,), torch.uint8)
    host_B.fill_(7)
    cuda.pin(host_B)
    stream = cuda.stream()

    def there_and_back() -> None:
        there_B.copy_(host_B, non_blocking=True)
        there_B.add_(1)
        host_B.copy_(there_B, non_blocking=True)

    busy = stream.submit(lambda: torch.cuda._sleep(200_000_000))
    end = stream.submit(there_and_back)
    assert not busy.is_done, "the host waited for a copy"
    end.wait()
    assert bool((host_B == 8).all())
    cuda.unpin(host_B)
    stream.close()
