"""Does a device tell the truth about itself, and hand out the memory it says it has?"""

from __future__ import annotations

import mmap

import pytest
import torch

from deepinfer_core.errors import DeviceError
from deepinfer_core.interfaces.device import Device
from deepinfer_core.testing.contracts.device_work import DeviceWorkContract

__all__ = ["DeviceContract"]


class DeviceContract(DeviceWorkContract):
    """Tests of ``Device``: what it is, and what it does."""

    def test_free_memory_is_part_of_the_total(self, component: Device) -> None:
        """Both are counted for this process."""
        memory = component.memory()
        assert 0 < memory.free_bytes <= memory.total_bytes

    @pytest.mark.parametrize("shape", [(0,), (1,), (3, 5), (2, 0, 4)])
    @pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.int64])
    def test_zeros_are_zero_and_live_on_the_device(
        self, component: Device, shape: tuple[int, ...], dtype: torch.dtype
    ) -> None:
        """Shape, dtype and place are as asked."""
        x = component.zeros(shape, dtype)
        assert (tuple(x.shape), x.dtype) == (shape, dtype)
        assert x.device.type == component.torch_device.type
        assert not bool(x.cpu().any())

    def test_zeros_of_two_calls_are_different_memory(self, component: Device) -> None:
        """The caller owns them."""
        first, second = component.zeros((4,), torch.uint8), component.zeros((4,), torch.uint8)
        first += 1
        assert not bool(second.any())

    def test_more_memory_than_there_is_raises_a_device_error(self, component: Device) -> None:
        """Neither a crash later on, nor torch's own exception."""
        wanted = 16 * component.memory().total_bytes
        with pytest.raises(DeviceError, match=str(wanted)):
            component.zeros((wanted,), torch.uint8)

    def test_a_host_buffer_lives_on_the_host(self, component: Device) -> None:
        """Its shape and dtype are as asked, and it can be copied to the device."""
        buffer = component.host_buffer((2, 3), torch.float32)
        assert (tuple(buffer.shape), buffer.dtype) == ((2, 3), torch.float32)
        assert buffer.device.type == "cpu"
        buffer.fill_(7)
        assert bool((buffer.to(component.torch_device).cpu() == 7).all())

    def test_pinned_memory_is_copied_like_any_other(self, component: Device) -> None:
        """While it is pinned, and afterwards; pinning is no promise."""
        memory_B = torch.frombuffer(mmap.mmap(-1, 8192), dtype=torch.uint8)
        component.pin(memory_B)
        memory_B.fill_(7)
        for _ in range(2):
            there_B = memory_B.to(component.torch_device)
            assert bool((there_B.cpu() == 7).all())
            component.unpin(memory_B)

    def test_facts_are_plain_and_not_empty(self, component: Device) -> None:
        """A report prints them as they are."""
        facts = component.facts()
        assert facts
        assert all(isinstance(value, str | int | float | bool) for value in facts.values())

    def test_waiting_for_an_idle_device_returns(self, component: Device) -> None:
        """Twice, because the first call may be the one that starts it."""
        component.synchronise()
        component.synchronise()

    def test_the_arithmetic_rate_is_positive_or_unknown(self, component: Device) -> None:
        """Unknown disables a statistic; it never fails, not even for a format nobody knows."""
        for number_format in ("bfloat16", "mxfp8", "no_such_format"):
            rate = component.peak_flops(number_format)
            assert rate is None or rate > 0

    def test_collectives_have_a_backend(self, component: Device) -> None:
        """A name for ``torch.distributed``."""
        assert component.collectives_backend in torch.distributed.Backend.backend_list
