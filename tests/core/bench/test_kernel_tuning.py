"""Is every candidate checked before it is timed, and beside the others?"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from deepinfer_core.bench import kernel_timing
from deepinfer_core.bench.kernel_timing import samples_in_turns
from deepinfer_core.bench.kernel_tuning import LoadTimes, load_times
from deepinfer_core.interfaces.operators.tunings import TunedKernel
from deepinfer_core.reference.device import CpuDevice
from deepinfer_core.testing.kernel_cases.tuned import TunedLoad

from tests.core.bench.fake_tunings import FakeKernels, FakeTunings, catalogue, kernel, load

DEVICE = CpuDevice()
NOW, OTHER = kernel("now"), kernel("other")


def timed(
    *candidates: TunedKernel,
    refused: dict[TunedKernel, str] | None = None,
    size: TunedLoad | None = None,
) -> LoadTimes:
    kernels = FakeKernels()
    return load_times(
        DEVICE,
        catalogue(kernels),
        kernels,
        FakeTunings(*candidates),
        size or load(10, (1, 0)),
        cache_bytes=0,
        refused=refused or {},
    )


def test_all_that_are_right_are_timed_and_so_is_the_peer() -> None:
    found = timed(NOW, OTHER)
    assert found.picked == NOW
    assert list(found.samples) == [NOW, OTHER]
    assert all(sample.seconds > 0 for sample in found.samples.values())
    assert (found.peer, found.problems) == ("torch.add", {})
    assert found.peer_s > 0


def test_a_peer_that_raises_is_named_and_has_no_time() -> None:
    def fails(given: Any) -> None:
        raise RuntimeError("no such width\nat all")

    size = load(10, (1, 0))
    size = replace(size, case=replace(size.case, peer=("acme 1.0", fails)))
    found = timed(NOW, OTHER, size=size)
    assert found.peer == "acme 1.0: RuntimeError: no such width"
    assert math.isnan(found.peer_s)
    assert list(found.samples) == [NOW, OTHER]


def test_what_differs_from_the_twin_has_no_time() -> None:
    wrong = kernel("wrong", factor=2.5)
    found = timed(wrong, NOW)
    assert list(found.samples) == [NOW]
    assert "out_T" in found.problems[wrong]


def test_what_is_within_the_bounds_must_still_have_the_bits_of_the_first() -> None:
    near = kernel("near", factor=2.000001)
    found = timed(NOW, near)
    assert list(found.samples) == [NOW]
    assert found.problems[near].startswith("AssertionError: out_T has other bits than the first")


def test_other_bits_that_are_meant_are_compared_with_the_twin() -> None:
    near = kernel("near", factor=2.000001, bits=2)
    far = kernel("far", factor=2.5, bits=3)
    found = timed(NOW, near, far)
    assert list(found.samples) == [NOW, near]
    assert "out_T" in found.problems[far]


def test_what_raises_or_was_not_compiled_is_told_and_ends_nothing() -> None:
    broken = kernel("broken", factor=0.0)
    found = timed(NOW, broken, OTHER, refused={OTHER: "nvcc: no"})
    assert list(found.samples) == [NOW]
    assert found.problems == {OTHER: "nvcc: no", broken: "RuntimeError: no such tile"}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Any]:
    """Makes calls that take so many seconds on a clock of their own."""
    now = [0.0]
    monkeypatch.setattr(kernel_timing.time, "perf_counter", lambda: now[0])

    def call(seconds: float) -> Any:
        def advance() -> None:
            now[0] += seconds

        return advance

    return call


def test_implementations_take_turns(clock: Callable[[float], Any]) -> None:
    made: list[str] = []
    calls = [[lambda name=name: made.append(name)] for name in "ab"]
    samples_in_turns(DEVICE, calls, count=1, replays=7)
    # Each is called once alone and once to warm up; equal times leave both in the running.
    assert "".join(made[4:]) == "ab" * 7


def test_a_sample_is_the_median_of_one_call_and_its_spread(clock: Callable[[float], Any]) -> None:
    """Quartiles of pieces that take 2, 2, 4, 6, 6 seconds for two calls."""
    durations = iter([0.0, 0.0, 0.0, *(second for each in (2, 2, 4, 6, 6) for second in (each, 0))])

    def step() -> None:
        clock(next(durations))()

    (sample,) = samples_in_turns(DEVICE, [[step]], count=2, replays=5)
    assert (sample.seconds, sample.spread_s) == (2.0, 2.0)


def test_those_that_are_far_behind_are_not_repeated(clock: Callable[[float], Any]) -> None:
    made: list[str] = []
    near, far = clock(1.25), clock(1.5)
    first = clock(1.0)

    def counted(name: str, call: Callable[[], None]) -> Any:
        def run() -> None:
            made.append(name)
            call()

        return run

    calls = [[counted("first", first)], [counted("near", near)], [counted("far", far)]]
    samples = samples_in_turns(DEVICE, calls, count=1, replays=20)
    assert [made.count(name) for name in ("first", "near", "far")] == [22, 22, 7]
    assert [sample.seconds for sample in samples] == [1.0, 1.25, 1.5]
