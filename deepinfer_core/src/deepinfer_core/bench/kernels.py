"""How fast are a backend's kernels at the model's own sizes?

Each is compared with its twin on the device first: a wrong kernel has no time. ``count`` calls in a
graph, medians of replays, see ``kernel_timing``. Up to eight sets of arguments take turns, so that
no cache holds them; cases so small that a cache holds all eight are timed from the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepinfer_core.bench.figures import Figure, Reference
from deepinfer_core.bench.kernel_timing import Ceilings, time_of

if TYPE_CHECKING:
    import torch

    from deepinfer_core.interfaces.device import Device
    from deepinfer_core.interfaces.operators.catalogue import KernelCatalogue, Kernels
    from deepinfer_core.testing.kernel_cases import KernelCase

__all__ = ["KernelTime", "kernel_times"]

_SETS = 8
_CACHE_SHARE = 3
"""All sets together hold this many times what the device's cache does, if ``_SETS`` are enough."""
_SEED = 0
_US = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """One kernel on one case.

    Attributes:
        case: id of the case.
        complaints: in what it differs from its twin; it was not timed if there are any.
        seconds: of one call.
        bound_s: the shortest time in which the case can be done.
        peer: name of another implementation, or empty.
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
        if self.peer:
            references.append(Reference(kind="peer", name=self.peer, value=self.peer_s * _US))
        name = f"kernel.{self.case}"
        return [Figure(name=name, value=value, unit=unit, reference=item) for item in references]


def kernel_times(
    device: Device,
    catalogue: KernelCatalogue,
    kernels: Kernels,
    cases: Iterable[KernelCase],
    rates: Ceilings,
    *,
    cache_bytes: int,
) -> Iterator[KernelTime]:
    """Check and time the cases that say what they move, one after the other.

    Args:
        device: where.
        catalogue: of the backend.
        kernels: its kernels, opened.
        cases: of operators of the catalogue.
        rates: ceilings of the same run.
        cache_bytes: of the device's largest cache.
    """
    for case in cases:
        if not case.moved_bytes:
            continue
        call = _caller(catalogue, kernels, case)
        wanted = math.ceil(_CACHE_SHARE * cache_bytes / case.moved_bytes)
        given = _arguments(case, device)
        wrong = _complaints(case, call, given)
        if wrong:
            yield KernelTime(case=case.id, complaints=tuple(wrong))
            continue
        copies = range(1, min(_SETS, wanted))
        sets = [given, *({name: x.clone() for name, x in given.items()} for _ in copies)]
        name, peer = catalogue.peer(case.operator, case.spec) or case.peer or ("", None)
        yield KernelTime(
            case=case.id,
            seconds=time_of(device, [_bound_to(call, given) for given in sets]),
            bound_s=rates.bound_s(case.moved_bytes, case.flops),
            peer=name,
            peer_s=time_of(device, [_bound_to(peer, given) for given in sets])
            if peer
            else math.nan,
        )


def _caller(
    catalogue: KernelCatalogue, kernels: Kernels, case: KernelCase
) -> Callable[[dict[str, torch.Tensor]], None]:
    build, tuning = catalogue.load(case.operator), catalogue.tune(case.operator, case.spec)
    return lambda given: kernels.call(build, case.spec, tuning, **given)


def _bound_to(
    call: Callable[[dict[str, torch.Tensor]], object], given: dict[str, torch.Tensor]
) -> Callable[[], object]:
    return lambda: call(given)


def _arguments(case: KernelCase, device: Device) -> dict[str, torch.Tensor]:
    import torch

    made = case.arguments(torch.Generator().manual_seed(_SEED))
    return {name: tensor.to(device.torch_device) for name, tensor in made.items()}


def _complaints(
    case: KernelCase,
    call: Callable[[dict[str, torch.Tensor]], None],
    given: dict[str, torch.Tensor],
) -> list[str]:
    from deepinfer_core.testing.kernel_cases import complaints

    expected = case.expect({name: tensor.clone() for name, tensor in given.items()})
    results = {name: tensor.clone() for name, tensor in given.items()}
    call(results)
    on_host = [{name: t.cpu() for name, t in part.items()} for part in (given, expected, results)]
    return complaints(case, *on_host)
