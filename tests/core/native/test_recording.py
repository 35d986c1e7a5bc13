"""Are kernel calls, and what torch does between them, made again as they were noted?"""

import threading
from collections.abc import Callable

import pytest
import torch
from deepinfer_core.config.kernel_cache import kernel_cache_folder
from deepinfer_core.errors import DeviceError
from deepinfer_core.interfaces.attention import AttentionSpec, KeySource
from deepinfer_core.interfaces.recording import Recording
from deepinfer_core.native.attention import CpuAttention
from deepinfer_core.native.library import bind, open_library
from deepinfer_core.native.recording import KernelRecorder, kernel_recorder
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.contracts.pages import make_pages

WIDTH = 32


@pytest.fixture(scope="module")
def recorder() -> KernelRecorder:
    return kernel_recorder(kernel_cache_folder())


@pytest.fixture(scope="module")
def norm() -> Callable[[torch.Tensor], torch.Tensor]:
    """One kernel call."""
    kernel = bind(open_library(kernel_cache_folder()), "di_rms_norm", "plllplfpl")
    weight_D = torch.ones(WIDTH)

    def call(x_TD: torch.Tensor) -> torch.Tensor:
        out_TD = torch.empty_like(x_TD)
        rows, width = x_TD.shape
        kernel(x_TD.data_ptr(), 1, rows, width, weight_D.data_ptr(), 1, 0.5, out_TD.data_ptr(), 1)
        return out_TD

    return call


def recorded(
    recorder: KernelRecorder, work: Callable[[], torch.Tensor]
) -> tuple[Recording, torch.Tensor]:
    results: list[torch.Tensor] = []
    recording = recorder.record(lambda: results.append(work()))
    assert recording is not None
    return recording, results[0]


def numbers(first: float) -> torch.Tensor:
    return torch.arange(3.0 * WIDTH).view(3, WIDTH).sin() + first


@torch.inference_mode()
def test_kernels_read_what_stands_there_when_they_are_called_again(
    recorder: KernelRecorder, norm: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    x_TD = numbers(1)
    recording, got_TD = recorded(recorder, lambda: norm(norm(x_TD)))
    assert_same_bits(got_TD, norm(norm(numbers(1))))
    for first in (2, 3):
        x_TD.copy_(numbers(first))
        recording.repeat()
        assert_same_bits(got_TD, norm(norm(numbers(first))))


@torch.inference_mode()
def test_operations_of_torch_are_done_again_in_their_place(
    recorder: KernelRecorder, norm: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    def work(x_TD: torch.Tensor) -> torch.Tensor:
        part_TD = norm(x_TD)[:, :4].contiguous()  # new memory
        part_TD.add_(x_TD[1, 0])  # in place
        most = torch.cat((x_TD, part_TD), dim=1).cummax(dim=1)  # two results
        return norm(most.values.view(-1, 4).to(torch.bfloat16).to(torch.float32))

    x_TD = numbers(1)
    recording, got_TD = recorded(recorder, lambda: work(x_TD))
    for first in (2, 3):
        x_TD.copy_(numbers(first))
        recording.repeat()
        assert_same_bits(got_TD, work(numbers(first)))


@torch.inference_mode()
def test_memory_in_between_is_counted_and_stays(
    recorder: KernelRecorder, norm: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    x_TD = numbers(1)
    recording, got_TD = recorded(recorder, lambda: norm(norm(norm(x_TD))))
    assert recording.memory_bytes == 3 * x_TD.nbytes
    others = [torch.full_like(x_TD, 7) for _ in range(8)]  # would take what was given back
    recording.repeat()
    assert_same_bits(got_TD, norm(norm(norm(numbers(1)))))
    assert all(bool((other == 7).all()) for other in others)


@torch.inference_mode()
def test_memory_of_results_of_torch_is_counted_but_not_that_of_views(
    recorder: KernelRecorder,
) -> None:
    x_TD = numbers(1)
    recording, _ = recorded(recorder, lambda: (x_TD + 1)[1:].view(-1))
    assert recording.memory_bytes == x_TD.nbytes


@torch.inference_mode()
def test_notes_are_given_back_with_the_recording_or_at_once_where_there_is_none(
    recorder: KernelRecorder,
    norm: Callable[[torch.Tensor], torch.Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    freed, free = [], recorder.free
    monkeypatch.setattr(recorder, "free", lambda calls: freed.append(free(calls)))
    recording, _ = recorded(recorder, lambda: norm(numbers(1)))
    assert freed == []
    del recording
    assert len(freed) == 1
    assert recorder.record(lambda: bool((norm(numbers(1)) > 0).any())) is None
    assert len(freed) == 2


@torch.inference_mode()
def test_lists_of_bytes_are_copied(recorder: KernelRecorder) -> None:
    attention = CpuAttention(kernel_cache_folder())
    pages = make_pages("cpu", "mxfp8", WIDTH, pages=2, rows_per_page=10)
    attention.store(numbers(0), torch.tensor([3, 4, 17]), pages)
    spec = AttentionSpec(heads=1, head_width=WIDTH, list_lengths=(3,), compute="float32")
    plan, sink_N = attention.plan(spec, 3), torch.zeros(1)
    slot_TL = torch.tensor([[3, 4, 17]] * 3)

    def attend(q_TND: torch.Tensor) -> torch.Tensor:
        out_TND, lse_TN = torch.empty_like(q_TND), torch.empty(3, 1)
        sources = [KeySource(pages=pages, slot_TL=slot_TL)]
        attention.run(plan, q_TND, sources, sink_N, 0.2, out_TND, lse_TN)
        return out_TND

    q_TND = numbers(1).view(3, 1, WIDTH)
    recording, got_TND = recorded(recorder, lambda: attend(q_TND))
    q_TND.copy_(numbers(2).view(3, 1, WIDTH))
    others = [b"\xff" * (72 + step) for step in range(9) for _ in range(200)]  # take its memory
    recording.repeat()
    assert len(others) == 1800
    assert_same_bits(got_TND, attend(numbers(2).view(3, 1, WIDTH)))


@pytest.mark.parametrize(
    "look",
    [
        lambda x_TD: x_TD[0, 0].item(),
        lambda x_TD: bool((x_TD > 0).any()),
        lambda x_TD: x_TD + torch.tensor([1.0]),
    ],
    ids=["a number", "a branch", "a number of the host"],
)
@torch.inference_mode()
def test_work_that_looks_at_numbers_or_brings_some_is_done_but_not_recorded(
    recorder: KernelRecorder, look: Callable[[torch.Tensor], object]
) -> None:
    seen: list[object] = []
    assert recorder.record(lambda: seen.append(look(numbers(1)))) is None
    assert len(seen) == 1


@torch.inference_mode()
def test_work_that_fails_ends_the_recording(
    recorder: KernelRecorder, norm: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    def work() -> None:
        norm(numbers(1))
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        recorder.record(work)
    norm(numbers(1))  # is noted nowhere
    x_TD = numbers(1)
    recording, got_TD = recorded(recorder, lambda: norm(x_TD))
    x_TD.copy_(numbers(2))
    recording.repeat()
    assert_same_bits(got_TD, norm(numbers(2)))


@torch.inference_mode()
def test_calls_of_another_thread_are_not_noted(
    recorder: KernelRecorder, norm: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    other_TD, kept = numbers(5), []

    def work() -> torch.Tensor:
        thread = threading.Thread(target=lambda: kept.append(norm(other_TD)))
        thread.start()
        thread.join()
        return norm(numbers(1))

    recording, _ = recorded(recorder, work)
    kept[0].fill_(7)
    recording.repeat()
    assert bool((kept[0] == 7).all())


@torch.inference_mode()
def test_a_call_that_fails_when_it_is_made_again_says_so(recorder: KernelRecorder) -> None:
    library = open_library(kernel_cache_folder())
    dispatch = bind(library, "di_exchange_dispatch", "pllllplplpppp")
    expert_Tk, floats, ints = torch.tensor([[1]]), torch.zeros(8), torch.zeros(8, dtype=torch.int64)
    x, at = floats.data_ptr(), ints.data_ptr()
    recording = recorder.record(
        lambda: dispatch(expert_Tk.data_ptr(), 1, 1, 2, 1, x, 4, x, 1, x, x, at, at)
    )
    assert recording is not None
    recording.repeat()
    expert_Tk.fill_(7)
    with pytest.raises(DeviceError, match="an index beyond its table"):
        recording.repeat()
