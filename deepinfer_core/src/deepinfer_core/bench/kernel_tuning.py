"""Which tuning of a kernel is the fastest at each number of rows, and is it right?

Every candidate is tried on the arguments that the others get. The first of those that must have the
same bits is compared with the twin, the others with the first, bit by bit. Those that are right are
timed in turns, beside the peer, see ``kernel_timing``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from deepinfer_core.bench.kernel_timing import Sample, samples_in_turns
from deepinfer_core.bench.kernels import argument_sets, device_arguments
from deepinfer_core.interfaces.operators.tunings import KernelTunings, TunedKernel
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.kernel_trials import KernelTrial

if TYPE_CHECKING:
    import torch

    from deepinfer_core.interfaces.device import Device
    from deepinfer_core.interfaces.operators.catalogue import KernelCatalogue, Kernels
    from deepinfer_core.testing.kernel_cases.tuned import TunedLoad

__all__ = ["LoadTimes", "load_times", "trial_of"]

Tensors = dict[str, "torch.Tensor"]

_NO_TIME = Sample(seconds=math.nan, spread_s=math.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTimes:
    """All candidates at one size.

    Attributes:
        load: the size.
        picked: what a launch takes now; it is one of the candidates.
        samples: of the candidates that are right.
        problems: why the others have none.
        peer: name of another implementation, and why it failed if it did; or empty.
        peer_s: of one call of it.
    """

    load: TunedLoad
    picked: TunedKernel
    samples: Mapping[TunedKernel, Sample]
    problems: Mapping[TunedKernel, str]
    peer: str = ""
    peer_s: float = math.nan


def trial_of(catalogue: KernelCatalogue, load: TunedLoad, one: TunedKernel) -> KernelTrial:
    """A candidate on the case of a size."""
    return KernelTrial(
        kernel=one.kernel, case=load.case, tuning=one.tuning, catalogue=catalogue, is_usual=False
    )


def load_times(
    device: Device,
    catalogue: KernelCatalogue,
    kernels: Kernels,
    tunings: KernelTunings,
    load: TunedLoad,
    *,
    cache_bytes: int,
    refused: Mapping[TunedKernel, str],
) -> LoadTimes:
    """Check and time all candidates of one size.

    Args:
        device: where.
        catalogue: of the backend.
        kernels: its kernels, opened.
        tunings: of the backend.
        load: the size.
        cache_bytes: of the device's largest cache; arguments rotate past it.
        refused: candidates that the compiler did not take, and its words.
    """
    case, given = load.case, device_arguments(load.case, device)
    picked = tunings.picked(case.operator, case.spec, case.rows)
    candidates = dict.fromkeys((picked, *tunings.candidates(case.operator, case.spec)))
    trials = {one: trial_of(catalogue, load, one) for one in candidates if one not in refused}
    checks = _Checks(kernels, given, str(device.torch_device))
    problems = {one: words for one, words in refused.items() if one in candidates}
    for one, trial in trials.items():
        if words := checks.words(trial, tunings.bits(one)):
            problems[one] = words
    right = [one for one in trials if one not in problems]
    sets = argument_sets(case, cache_bytes)
    own = {
        kernel: [trial_of(catalogue, load, one).arranged(given) for _ in range(sets)]
        for kernel, one in {one.kernel: one for one in right}.items()
    }
    contenders = [
        [partial(trials[one].call, kernels, tensors) for tensors in own[one.kernel]]
        for one in right
    ]
    peer, peer_calls = _peer(catalogue, load, given, sets)
    samples = samples_in_turns(device, [*contenders, *([peer_calls] if peer_calls else [])])
    return LoadTimes(
        load=load,
        picked=picked,
        samples=dict(zip(right, samples, strict=False)),
        problems=problems,
        peer=peer,
        peer_s=samples[-1].seconds if peer_calls else math.nan,
    )


class _Checks:
    """What candidates compute on the same arguments.

    Args:
        kernels: run them.
        given: the arguments.
        place: torch name of the device.
    """

    def __init__(self, kernels: Kernels, given: Tensors, place: str) -> None:
        self._kernels = kernels
        self._given = given
        self._place = place
        self._first: dict[Hashable, Tensors] = {}

    def words(self, trial: KernelTrial, bits: Hashable) -> str:
        """What is wrong; empty if nothing is."""
        try:
            if bits in self._first:
                results = self._results(trial)
                for name, want in self._first[bits].items():
                    if name in results:
                        _require_same_bits(name, results[name], want)
                return ""
            if found := trial.complaints(self._kernels, self._given, self._place):
                return found[0]
            self._first[bits] = self._results(trial)
        except Exception as error:  # noqa: BLE001 - a kernel's launch raises anything
            return f"{type(error).__name__}: {error}".partition("\n")[0]
        return ""

    def _results(self, trial: KernelTrial) -> Tensors:
        results = trial.arranged(self._given)
        trial.call(self._kernels, results)
        return results


def _require_same_bits(name: str, got: torch.Tensor, want: torch.Tensor) -> None:
    """On the device; only what differs is copied to the host, to be told."""
    import torch

    if torch.equal(_bytes(got), _bytes(want)):
        return
    try:
        assert_same_bits(got, want)
    except AssertionError as error:
        raise AssertionError(f"{name} has other bits than the first: {error}") from error


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _peer(
    catalogue: KernelCatalogue, load: TunedLoad, given: Tensors, sets: int
) -> tuple[str, Sequence[Callable[[], object]]]:
    """Name and calls of another implementation; no calls, and why, if it does not work here."""
    case = load.case
    name, peer = catalogue.peer(case.operator, case.spec) or case.peer or ("", None)
    if peer is None:
        return "", []
    calls = [
        partial(peer, {name: tensor.clone() for name, tensor in given.items()}) for _ in range(sets)
    ]
    try:
        calls[0]()
    except Exception as error:  # noqa: BLE001 - a library of others raises anything
        return f"{name}: {type(error).__name__}: {error}".partition("\n")[0], []
    return name, calls
