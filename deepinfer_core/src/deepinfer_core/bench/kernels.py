"""How fast are a backend's kernels at the model's own sizes?

Each is compared with its twin on the device first: a wrong kernel has no time. ``count`` calls in a
graph, medians of replays, see ``kernel_timing``. Up to eight sets of arguments take turns, so that
no cache holds them; cases so small that a cache holds all eight are timed from the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from deepinfer_core.bench.figures import Figure, Reference
from deepinfer_core.bench.kernel_timing import Ceilings, time_of
from deepinfer_core.testing.kernel_trials import trials

if TYPE_CHECKING:
    import torch

    from deepinfer_core.interfaces.device import Device
    from deepinfer_core.interfaces.operators.catalogue import KernelCatalogue, Kernels
    from deepinfer_core.testing.kernel_cases import KernelCase

__all__ = ["KernelTime", "argument_sets", "device_arguments", "kernel_times", "wrong_trials"]

_SETS = 8
_CACHE_SHARE = 3
"""All sets together hold this many times what the device's cache does, if ``_SETS`` are enough."""
_SEED = 0
_US = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """One kernel on one case.

    Attributes:
        case: kernel and case.
        complaints: in what it differs from its twin; it was not timed if there are any.
        seconds: of one call.
        bound_s: the shortest time in which the case can be done.
        peer: name of another implementation, and why it failed if it did; or empty.
        peer_s: of one call of it.
    """

    case: str
    complaints: tuple[str, ...] = ()
    seconds: float = math.nan
    bound_s: float = math.nan
    peer: str = ""
    peer_s: float = math.nan

    def figures(self) -> list[Figure]:
        """The time against its bound, and against its peer if there is one."""
        if self.complaints:
            return []
        value, unit = self.seconds * _US, "us"
        references = [Reference(kind="bound", name="copy or matrix rate", value=self.bound_s * _US)]
        if not math.isnan(self.peer_s):
            references.append(Reference(kind="peer", name=self.peer, value=self.peer_s * _US))
        name = f"kernel.{self.case}"
        return [Figure(name=name, value=value, unit=unit, reference=item) for item in references]


def kernel_times(
    device: Device,
    catalogue: KernelCatalogue,
    kernels: Kernels,
    names: Iterable[str],
    rates: Ceilings,
    *,
    cache_bytes: int,
    wrong: Collection[str] | None = None,
) -> Iterator[KernelTime]:
    """Check and time the cases that say what they move, one after the other.

    Args:
        device: where.
        catalogue: of the backend.
        kernels: its kernels, opened.
        names: of kernels of the catalogue.
        rates: ceilings of the same run.
        cache_bytes: of the device's largest cache.
        wrong: ids of the trials that are, where all were compared before; None compares those that
            are timed.
    """
    for trial in (trial for name in names for trial in trials(catalogue, name)):
        case = trial.case
        if not case.moved_bytes or not trial.is_usual:
            continue
        if wrong is not None and trial.id in wrong:
            continue
        given = device_arguments(case, device)
        words = trial.complaints(kernels, given, str(device.torch_device)) if wrong is None else ()
        if words:
            yield KernelTime(case=trial.id, complaints=tuple(words))
            continue
        count = argument_sets(case, cache_bytes)
        own = [trial.arranged(given) for _ in range(count)]
        seconds = time_of(device, [_bound_to(partial(trial.call, kernels), one) for one in own])
        del own
        peer, peer_s = _peer_time(device, catalogue, case, given, count)
        yield KernelTime(
            case=trial.id,
            seconds=seconds,
            bound_s=rates.bound_s(case.moved_bytes, case.flops),
            peer=peer,
            peer_s=peer_s,
        )


def argument_sets(case: KernelCase, cache_bytes: int) -> int:
    """Sets of arguments that no cache holds together, as far as ``_SETS`` are enough.

    Args:
        case: says what it moves.
        cache_bytes: of the device's largest cache.
    """
    wanted = math.ceil(_CACHE_SHARE * cache_bytes / case.moved_bytes)
    return max(1, min(_SETS, wanted))


def device_arguments(case: KernelCase, device: Device) -> dict[str, torch.Tensor]:
    """The arguments of a case, always the same numbers, on the device."""
    import torch

    made = case.arguments(torch.Generator().manual_seed(_SEED))
    return {name: tensor.to(device.torch_device) for name, tensor in made.items()}


def _peer_time(
    device: Device,
    catalogue: KernelCatalogue,
    case: KernelCase,
    given: dict[str, torch.Tensor],
    count: int,
) -> tuple[str, float]:
    """Name and seconds of another implementation; not a number where there is none, or it fails."""
    name, peer = catalogue.peer(case.operator, case.spec) or case.peer or ("", None)
    if peer is None:
        return "", math.nan
    others = [_copied(given) for _ in range(count)]
    try:
        return name, time_of(device, [_bound_to(peer, one) for one in others])
    except Exception as error:  # noqa: BLE001 - a library of others raises anything
        return f"{name}: {type(error).__name__}: {error}".partition("\n")[0], math.nan


def wrong_trials(
    catalogue: KernelCatalogue, kernels: Kernels, name: str, place: str
) -> dict[str, tuple[str, ...]]:
    """The trials of a kernel, at all sizes, that it does not pass; with their complaints.

    Args:
        catalogue: of the backend.
        kernels: its kernels, opened.
        name: of a kernel of the catalogue.
        place: torch name of the device.
    """
    import torch

    found = {}
    for trial in trials(catalogue, name):
        given = trial.case.arguments(torch.Generator().manual_seed(_SEED))
        if not trial.case.small:
            given = {argument: tensor.to(place) for argument, tensor in given.items()}
        try:
            words = trial.complaints(kernels, given, place)
        except Exception as error:  # noqa: BLE001 - a kernel's compiler raises anything
            words = [f"{type(error).__name__}: {error}"]
        if words:
            found[trial.id] = tuple(words)
    return found


def _copied(given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in given.items()}


def _bound_to(
    call: Callable[[dict[str, torch.Tensor]], object], given: dict[str, torch.Tensor]
) -> Callable[[], object]:
    return lambda: call(given)
