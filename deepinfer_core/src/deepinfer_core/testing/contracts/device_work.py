"""Does a device work in order, tell the end and the failures, and repeat what it recorded?"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from deepinfer_core.errors import DeepInferError, EngineError
from deepinfer_core.interfaces.device import Device
from deepinfer_core.interfaces.recording import Recorder, Recording
from deepinfer_core.testing.contracts.suite import ContractSuite

__all__ = ["DeviceWorkContract"]

_MANY = 1 << 20
"""Elements; enough that a device is still busy when the host comes to wait."""


class DeviceWorkContract(ContractSuite):
    """Tests of streams, events, recordings and reachable tables."""

    def test_the_host_sees_what_was_done_before_an_event(self, component: Device) -> None:
        """The event is behind the copy to the host, and the copy behind the sums."""
        x, host = component.zeros((_MANY,), torch.int64), component.host_buffer((1,), torch.int64)
        stream = component.stream()
        end = stream.submit(lambda: _count(x, 100, host))
        end.wait()
        assert host.tolist() == [100 * _MANY]
        end.wait()
        stream.close()

    def test_an_event_says_without_waiting_whether_its_work_is_done(
        self, component: Device
    ) -> None:
        """Not before it is, and for good once somebody has waited; of broken work as well."""
        x, host = component.zeros((_MANY,), torch.int64), component.host_buffer((1,), torch.int64)
        stream = component.stream()
        end, broken = stream.submit(lambda: _count(x, 100, host)), stream.submit(_fail)
        while not end.is_done:
            pass
        assert host.tolist() == [100 * _MANY]
        with pytest.raises(KeyError):
            broken.wait()
        assert broken.is_done
        stream.close()

    def test_work_is_done_in_the_order_in_which_it_was_given(self, component: Device) -> None:
        """Each piece reads what the one before has written."""
        x = component.zeros((_MANY,), torch.int64)
        stream = component.stream()
        ends = [stream.submit(lambda n=n: _append(x, n)) for n in (1, 2, 3)]  # type: ignore[misc]
        ends[-1].wait()
        assert x[[0, -1]].tolist() == [123, 123]
        stream.close()

    def test_an_error_is_raised_where_it_is_waited_for_and_stops_nothing(
        self, component: Device
    ) -> None:
        """The same one as often as somebody waits; work behind it runs."""
        x = component.zeros((4,), torch.int64)
        stream = component.stream()
        broken = stream.submit(_fail)
        behind = stream.submit(lambda: _append(x, 7))
        for _ in range(2):
            with pytest.raises(KeyError, match="broken on purpose"):
                broken.wait()
        behind.wait()
        stream.drain()
        assert x.tolist() == [7, 7, 7, 7]
        stream.close()

    def test_a_closed_stream_has_done_its_work_and_takes_no_more(self, component: Device) -> None:
        """Closing twice is closing once."""
        x, host = component.zeros((_MANY,), torch.int64), component.host_buffer((1,), torch.int64)
        stream = component.stream()
        stream.submit(lambda: _count(x, 10, host))
        stream.close()
        assert host.tolist() == [10 * _MANY]
        stream.close()
        with pytest.raises(EngineError, match="closed"):
            stream.submit(lambda: None)

    def test_a_host_buffer_may_go_while_its_copy_is_under_way(self, component: Device) -> None:
        """Whoever packs a step lets go of the buffer when the copy is queued."""
        x = component.zeros((_MANY,), torch.int64)
        stream = component.stream()

        def work() -> None:
            _count(x, 50, None)
            buffer = component.host_buffer((_MANY,), torch.int64)
            buffer.fill_(5)
            x.copy_(buffer, non_blocking=True)

        stream.submit(work)
        stream.submit(lambda: _fill(component.host_buffer((_MANY,), torch.int64), 9))
        stream.close()
        assert bool((x == 5).all())

    @pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float8_e4m3fn])
    @pytest.mark.parametrize("rows", [1, 2, 3001])
    def test_rows_of_a_reachable_table_are_those_of_the_host(
        self, component: Device, generator: torch.Generator, dtype: torch.dtype, rows: int
    ) -> None:
        """Any row, any number of times."""
        host = torch.randint(0, 120, (rows, 24), generator=generator, dtype=torch.uint8).to(dtype)
        table = component.reachable(host)
        assert (table.shape, table.dtype) == (host.shape, host.dtype)
        assert table.device.type == component.torch_device.type
        row_R = torch.randint(0, rows, (77,), generator=generator)
        bytes_RB = table.view(torch.uint8).index_select(0, row_R.to(component.torch_device))
        assert bool((bytes_RB.cpu() == host.view(torch.uint8)[row_R]).all())

    def test_an_empty_table_is_reachable(self, component: Device) -> None:
        """It has a shape."""
        assert component.reachable(torch.empty((0, 24))).shape == (0, 24)

    def test_work_beside_reads_what_was_launched_and_is_there_when_wanted(
        self, component: Device
    ) -> None:
        """What is launched in between does not disturb it; what it made may be made again."""
        x, sums = component.zeros((_MANY,), torch.int64), component.zeros((3,), torch.int64)
        stream = component.stream()
        for turn in (1, 2, 3):
            stream.submit(lambda: _sums_beside(component, x, sums)).wait()
            assert sums.tolist() == [turn * _MANY, 2 * turn * _MANY, turn * _MANY]
        stream.close()

    def test_work_beside_is_recorded_and_repeated(self, component: Device) -> None:
        """A recording waits where the launches waited."""
        x, sums = component.zeros((_MANY,), torch.int64), component.zeros((3,), torch.int64)
        recording = _recorded(component, lambda: _sums_beside(component, x, sums))
        stream = component.stream()
        for turn in (3, 4, 5):
            stream.submit(recording.repeat).wait()
            assert sums.tolist() == [turn * _MANY, 2 * turn * _MANY, turn * _MANY]
        stream.close()

    def test_recording_does_the_work_once(self, component: Device) -> None:
        """As if nobody had noted it down."""
        x = component.zeros((_MANY,), torch.int64)
        _recorded(component, lambda: _count(x, 1, None))  # does it once before
        component.synchronise()
        assert x[[0, -1]].tolist() == [2, 2]

    def test_a_recording_repeats_its_work_on_what_is_there_then(self, component: Device) -> None:
        """It reads its inputs and writes its outputs where they were, each time."""
        x, out = (component.zeros((_MANY,), torch.int64) for _ in range(2))

        def work() -> None:
            between = x * 2
            out.copy_(between + 1)

        recording = _recorded(component, work)
        assert recording.memory_bytes >= 0
        stream = component.stream()
        for number in (3, 4):
            stream.submit(lambda n=number: _fill(x, n))  # type: ignore[misc]
            stream.submit(recording.repeat).wait()
            assert out[[0, -1]].tolist() == [2 * number + 1] * 2
        stream.close()

    def test_recordings_take_turns(self, component: Device) -> None:
        """What one leaves in memory that they share does not show in the other."""
        x, outs = (
            component.zeros((64,), torch.int64),
            [component.zeros((64,), torch.int64) for _ in range(2)],
        )

        def work(number: int) -> None:
            outs[number].copy_((x + number) * (x + number + 1))

        made = [_recorded(component, lambda n=n: work(n)) for n in (0, 1)]  # type: ignore[misc]
        x.fill_(5)
        component.synchronise()
        stream = component.stream()
        for number in (0, 1, 0):
            stream.submit(made[number].repeat).wait()
            assert outs[number][0].item() == (5 + number) * (6 + number)
        stream.close()

    def test_work_that_waits_cannot_be_recorded(self, component: Device) -> None:
        """It fails when it is recorded, and the device is as usable as before."""
        x = component.zeros((4,), torch.int64)

        def work() -> None:
            x.add_(int(x.sum()))

        recorder = _recorder(component)
        work()
        with pytest.raises(DeepInferError):
            recorder.record(work)
        x.fill_(2)
        component.synchronise()
        assert x.tolist() == [2, 2, 2, 2]


def _recorder(component: Device) -> Recorder:
    if component.recorder is None:
        pytest.skip("the device has no recorder; one that has it is tested")
    return component.recorder


def _recorded(component: Device, work: Callable[[], None]) -> Recording:
    recorder = _recorder(component)
    work()
    component.synchronise()
    recording = recorder.record(work)
    assert recording is not None
    return recording


def _count(x: torch.Tensor, times: int, host: torch.Tensor | None) -> None:
    for _ in range(times):
        x += 1
    if host is not None:
        host.copy_(x.sum(dim=0, keepdim=True), non_blocking=True)


def _sums_beside(device: Device, x: torch.Tensor, sums: torch.Tensor) -> None:
    """Add 1 to ``x``; its sum beside, twice, and twice its sum in between."""
    x += 1
    first = device.beside(lambda: x.sum(dim=0, keepdim=True))
    second = device.beside(lambda: (x * 1).sum(dim=0, keepdim=True))
    sums[1:2].copy_((x * 2).sum(dim=0, keepdim=True))
    sums[2:].copy_(second())
    sums[:1].copy_(first())


def _fill(x: torch.Tensor, number: int) -> None:
    x.fill_(number)


def _append(x: torch.Tensor, digit: int) -> None:
    x *= 10
    x += digit


def _fail() -> None:
    raise KeyError("broken on purpose")
