"""Does the watch see whatever makes a host wait, and nothing else?"""

from collections.abc import Callable

import pytest
import torch
from deepinfer_core.testing.host_waits import HostWait, no_host_waits

X = torch.arange(6)
META = torch.empty(6, dtype=torch.int64, device="meta")

WAITING: dict[str, Callable[[], object]] = {
    "item": X[0].item,
    "bool": lambda: bool((X > 3).any()),
    "int": lambda: int(X[2]),
    "float": lambda: float(X[2]),
    "index": lambda: range(int(X.max())),
    "tolist": X.tolist,
    "cpu": X.cpu,
    "nonzero": X.nonzero,
    "masked_select": lambda: X.masked_select(X > 3),
    "mask as index": lambda: X[X > 3],
    "mask as target": lambda: X.clone().__setitem__(X > 3, torch.zeros(2, dtype=torch.int64)),
    "unique": lambda: torch.unique(X),
    "unique_consecutive": lambda: torch.unique_consecutive(X),
    "bincount": lambda: torch.bincount(X),
    "equal": lambda: torch.equal(X, X),
    "positions": lambda: torch.where(X > 3),
    "repeats": lambda: X.repeat_interleave(X),
    "constant": lambda: torch.tensor([1, 2]),
    "constant on the device": lambda: torch.tensor([1, 2], device="meta"),
    "copy to the device": lambda: X.to("meta"),
    "copy and cast": lambda: X.to("meta", torch.float32),
    "copy into the device": lambda: META.clone().copy_(X),
    "index on the host": lambda: META[X],
    "in place with the host": lambda: META.clone().mul_(X),
}

QUEUED: dict[str, Callable[[], object]] = {
    "arithmetic": lambda: X * 2 + 1,
    "index": lambda: X[X.flip(0)],
    "index_put": lambda: X.clone().index_put_((X,), X),
    "fill": lambda: X.clone().masked_fill_(X > 3, 0),
    "where": lambda: torch.where(X > 3, X, 0),
    "sort": lambda: X.sort(stable=True),
    "repeats of equal number": lambda: X.repeat_interleave(3, 0),
    "copy to the device": lambda: X.to("meta", non_blocking=True),
    "copy from the device": lambda: X.clone().copy_(META, non_blocking=True),
    "dtype": lambda: X.to(torch.float32),
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", WAITING)
def test_what_waits_raises(name: str, inference: bool) -> None:
    with pytest.raises(HostWait), no_host_waits(), torch.inference_mode(inference):
        WAITING[name]()


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", QUEUED)
def test_what_is_queued_passes(name: str, inference: bool) -> None:
    with no_host_waits() as watch, torch.inference_mode(inference):
        QUEUED[name]()
    assert watch.seen


def test_a_permitted_component_may_wait_and_its_caller_may_not() -> None:
    class Component:
        kind = "slow"

        def run(self) -> list[int]:
            return X.tolist()

    with no_host_waits() as watch:
        component = watch.permitting(Component())
        assert component.run() == [0, 1, 2, 3, 4, 5]
        assert component.kind == "slow"
        with pytest.raises(HostWait):
            X.tolist()


def test_outside_nothing_is_watched() -> None:
    with no_host_waits():
        pass
    assert X.tolist()[1] == 1
