"""Are kernels compared with their twins before they are timed, and with their bounds after?"""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from deepinfer_core.bench import kernel_timing
from deepinfer_core.bench.kernel_timing import Ceilings, ceilings, time_of
from deepinfer_core.bench.kernels import KernelTime, kernel_times, wrong_trials
from deepinfer_core.interfaces.operators.catalogue import KernelCatalogue, Kernels
from deepinfer_core.reference.device import CpuDevice
from deepinfer_core.testing import kernel_trials
from deepinfer_core.testing.kernel_cases import KernelCase, poisoned

Times = Callable[..., list[KernelTime]]
DEVICE = CpuDevice()
RATES = Ceilings(copy_bytes_per_s=1000.0, flops_per_s=500.0)


def doubled(*, moved_bytes: int = 80, peer: Any = None) -> KernelCase:
    """Twice the input."""
    return KernelCase(
        operator="transform_double",
        name="ten",
        spec=None,
        arguments=lambda generator: {
            "x_T": torch.randn(10, generator=generator),
            "out_T": poisoned(10, dtype=torch.float32),
        },
        expect=lambda given: {"out_T": given["x_T"] * 2},
        moved_bytes=moved_bytes,
        peer=peer,
    )


class FakeKernels(Kernels):
    """Multiplies by a factor, and remembers whose memory it read."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.read: list[int] = []

    def call(self, build: Any, spec: Any, tuning: Any, /, **tensors: torch.Tensor) -> None:
        self.read.append(tensors["x_T"].data_ptr())
        torch.mul(tensors["x_T"], self.factor, out=tensors["out_T"])


def catalogue(kernels: Kernels) -> KernelCatalogue:
    return KernelCatalogue(
        backend="fake",
        dialect="cuda",
        architectures=(),
        folder=Path(__file__).parent,
        load=lambda operator: lambda spec, tuning: operator,
        tune=lambda kernel, spec, rows: rows,
        open=lambda cache_dir: kernels,
        measured=Path("nowhere"),
    )


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    """The times of a kernel with one case."""

    def times(
        kernels: Kernels,
        case: KernelCase,
        *,
        cache_bytes: int = 0,
        wrong: set[str] | None = None,
        **changes: Any,
    ) -> list[KernelTime]:
        monkeypatch.setattr(kernel_trials, "cases_of", lambda operator: (case,))
        names, made = ["transform_double"], replace(catalogue(kernels), **changes)
        chosen = {"cache_bytes": cache_bytes, "wrong": wrong}
        return list(kernel_times(DEVICE, made, kernels, names, RATES, **chosen))

    return times


def test_a_right_kernel_is_timed_against_its_bound(times: Times) -> None:
    (found,) = times(FakeKernels(2.0), doubled())
    assert found.complaints == ()
    assert found.seconds > 0
    assert found.bound_s == 80 / 1000
    (figure,) = found.figures()
    assert figure.name == "kernel.transform_double[ten]"
    assert (figure.reference.kind, figure.reference.value) == ("bound", pytest.approx(80_000))


def test_a_wrong_kernel_has_complaints_and_no_time(times: Times) -> None:
    (found,) = times(FakeKernels(2.5), doubled())
    assert "out_T" in found.complaints[0]
    assert math.isnan(found.seconds)
    assert found.figures() == []


def test_trials_that_were_compared_before_are_not_compared_again(times: Times) -> None:
    """Only those that are right are timed."""
    assert times(FakeKernels(2.0), doubled(), wrong={"transform_double[ten]"}) == []
    kernels = FakeKernels(2.5)
    (found,) = times(kernels, doubled(), wrong=set())
    assert found.complaints == ()
    assert found.seconds > 0
    assert len(set(kernels.read)) == 1  # the memory of the timed calls, and no other


def test_a_case_that_does_not_say_what_it_moves_is_not_timed(times: Times) -> None:
    assert list(times(FakeKernels(2.0), doubled(moved_bytes=0))) == []


@pytest.mark.parametrize(("cache_bytes", "sets"), [(0, 1), (26, 1), (27, 2), (54, 3), (10**6, 8)])
def test_arguments_rotate_past_the_cache(times: Times, cache_bytes: int, sets: int) -> None:
    """Three caches' worth of bytes, 80 a set, eight sets at most."""
    kernels = FakeKernels(2.0)
    list(times(kernels, doubled(), cache_bytes=cache_bytes))
    timed = kernels.read[1:]  # the first call is that of the comparison
    assert len(set(timed)) == sets


def test_a_peer_is_timed_on_the_same_arguments(times: Times) -> None:
    seen: list[list[float]] = []
    peer = ("torch.add", lambda given: seen.append(given["x_T"].tolist()))
    kernels = FakeKernels(2.0)
    (found,) = times(kernels, doubled(peer=peer))
    assert [figure.reference.kind for figure in found.figures()] == ["bound", "peer"]
    assert found.peer_s > 0
    wanted = doubled().arguments(torch.Generator().manual_seed(0))["x_T"].tolist()
    assert seen
    assert all(one == wanted for one in seen)


def test_a_peer_that_fails_is_named_and_has_no_time(times: Times) -> None:
    def fail(_given: dict[str, torch.Tensor]) -> None:
        raise RuntimeError("no such product\nat all")

    (found,) = times(FakeKernels(2.0), doubled(peer=("a.library", fail)))
    assert found.peer == "a.library: RuntimeError: no such product"
    assert math.isnan(found.peer_s)
    assert [figure.reference.kind for figure in found.figures()] == ["bound"]


def test_a_peer_that_the_backend_finds_goes_before_the_one_of_the_case(times: Times) -> None:
    """Asked for with the operator and the spec."""
    asked: list[tuple[str, Any]] = []

    def peer(operator: str, spec: Any) -> tuple[str, Any]:
        asked.append((operator, spec))
        return "a_library 1.0", lambda given: None

    case = doubled(peer=("torch.add", lambda given: pytest.fail("another peer was there")))
    found = times(FakeKernels(2.0), case, peer=peer)
    assert [item.peer for item in found] == ["a_library 1.0"]
    assert asked == [("transform_double", None)]


def test_a_kernel_that_writes_its_input_has_complaints(times: Times) -> None:
    class Spoiling(FakeKernels):
        def call(self, build: Any, spec: Any, tuning: Any, /, **tensors: torch.Tensor) -> None:
            super().call(build, spec, tuning, **tensors)
            tensors["x_T"].zero_()

    (found,) = times(Spoiling(2.0), doubled())
    assert [words[:4] for words in found.complaints] == ["x_T:"]


@pytest.mark.parametrize("small", [True, False])
def test_a_trial_that_a_kernel_does_not_pass_is_named(
    monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    """Cases of every size, those that are not timed too."""
    case = replace(doubled(moved_bytes=0), small=small)
    monkeypatch.setattr(kernel_trials, "cases_of", lambda operator: (case,))

    def wrong(kernels: Kernels) -> dict[str, tuple[str, ...]]:
        return wrong_trials(catalogue(kernels), kernels, "transform_double", "cpu")

    assert wrong(FakeKernels(2.0)) == {}
    assert "out_T" in wrong(FakeKernels(2.5))["transform_double[ten]"][0]


def test_a_kernel_that_raises_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(FakeKernels):
        def call(self, build: Any, spec: Any, tuning: Any, /, **tensors: torch.Tensor) -> None:
            raise ZeroDivisionError("no such tile")

    monkeypatch.setattr(kernel_trials, "cases_of", lambda operator: (doubled(),))
    kernels = Broken(2.0)
    found = wrong_trials(catalogue(kernels), kernels, "transform_double", "cpu")
    assert found == {"transform_double[ten]": ("ZeroDivisionError: no such tile",)}


def test_a_time_is_that_of_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty calls a piece: one warm call, one untimed piece, then three timed ones."""
    made: list[int] = []
    # A clock on which a call takes a quarter of a second; such sums are exact.
    monkeypatch.setattr(kernel_timing.time, "perf_counter", lambda: len(made) / 4)
    assert time_of(DEVICE, [lambda: made.append(1)], count=20, replays=3) == 0.25
    assert len(made) == 1 + 20 * 4


def test_ceilings_are_bytes_read_and_written_and_twice_the_products_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def pretend(device: Any, calls: Any) -> float:
        calls[0]()
        return 0.5

    monkeypatch.setattr(kernel_timing, "time_of", pretend)
    found = ceilings(DEVICE, copy_bytes=1 << 16, side=64)
    assert found == Ceilings(copy_bytes_per_s=2 * 2 * (1 << 16), flops_per_s=2 * 2 * 64**3)


def test_the_slower_of_both_ceilings_is_the_bound() -> None:
    assert RATES.bound_s(1000, 250) == 1.0
    assert RATES.bound_s(100, 250) == 0.5
