"""Is host memory registered with the driver once, and taken off its books again?"""

from contextlib import nullcontext

import pytest
import torch
from deepinfer_nvidia.device.shared_memory import SharedMemory


class Runtime:
    """Stands in for the CUDA runtime."""

    code = 0

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def cudaHostRegister(self, address: int, nbytes: int, flags: int) -> int:  # noqa: N802
        self.calls.append(("register", address))
        return self.code

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        self.calls.append(("unregister", address))
        return 0


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    runtime = Runtime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    return runtime


def test_memory_is_registered_and_unregistered_once(runtime: Runtime) -> None:
    shared, memory_B = SharedMemory(torch.device("cpu")), torch.zeros(8, dtype=torch.uint8)
    assert shared.pin(memory_B)
    shared.unpin(memory_B)
    shared.unpin(memory_B)
    assert [name for name, _ in runtime.calls] == ["register", "unregister"]
    assert {address for _, address in runtime.calls} == {memory_B.data_ptr()}


def test_what_the_driver_refuses_stays_and_fails_nobody(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver remembers the refusal until somebody asks: that is done at once."""
    asked = []

    def tell_of_it(*shape: int, **options: object) -> None:
        asked.append(shape)
        raise RuntimeError("CUDA error: out of memory")

    shared, memory_B = SharedMemory(torch.device("cpu")), torch.zeros(8, dtype=torch.uint8)
    runtime.code = 2
    monkeypatch.setattr(torch, "zeros", tell_of_it)
    assert not shared.pin(memory_B)
    shared.unpin(memory_B)
    assert [name for name, _ in runtime.calls] == ["register"]
    assert asked == [(1,)]
