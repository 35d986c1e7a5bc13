"""Which faults is a store of some name put through, how many of each, and what do they leave?

Of every hundred faults most are damaged records, which cost a millisecond; a process that is killed
or a file that is cut off costs a second. Before and behind all of them descriptors, threads and
memory of this process are compared.
"""

from __future__ import annotations

import gc
import os
import resource
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from deepinfer_core.testing.store_faults.damage import FaultReport, damage_records
from deepinfer_core.testing.store_faults.processes import cut_off, fill_medium, kill_writers
from deepinfer_core.testing.store_faults.slow import slow_tiers
from deepinfer_core.testing.store_faults.targets import Target, make_target
from deepinfer_core.testing.store_groups import BLOCKS, STATES

__all__ = ["Campaign", "Left", "damage_in_turn", "left_behind", "run_campaign"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """How many faults of each sort.

    Attributes:
        damaged: records of which bits flip, or which are torn.
        killed: processes that write.
        cut: files that are cut off.
        full: media that have no room.
        slow: tiers that hang or are slow; of stores in tiers.
    """

    damaged: int
    killed: int = 0
    cut: int = 0
    full: int = 0
    slow: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a process has.

    Attributes:
        descriptors, threads: how many.
        resident_bytes: memory.
    """

    descriptors: int
    threads: int
    resident_bytes: int

    def minus(self, before: Left) -> Mapping[str, int]:
        """What has come since."""
        return {
            "descriptors": self.descriptors - before.descriptors,
            "threads": self.threads - before.threads,
            "resident_bytes": self.resident_bytes - before.resident_bytes,
        }


def left_behind() -> Left:
    """What this process has now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Left(
        descriptors=len(os.listdir("/proc/self/fd")),
        threads=threading.active_count(),
        resident_bytes=pages * resource.getpagesize(),
    )


def damage_in_turn(make: Callable[[Path], Target], count: int, seed: int) -> FaultReport:
    """Damage so many records of a store, one after the other.

    Args:
        make: the store, in a folder.
        count: records.
        seed: of what is damaged.

    Raises:
        WrongBytes: the store handed out something else than had been stored.
        AssertionError: it broke another promise.
    """
    with TemporaryDirectory() as folder:
        target = make(Path(folder))
        target.store.open([BLOCKS, STATES])
        try:
            return damage_records(target, count, seed)
        finally:
            target.store.close()


def run_campaign(name: str, campaign: Campaign, seed: int) -> FaultReport:
    """Put the store of a name through all faults that it can have.

    Stores without files have no process that matters, nothing to be cut off and no medium; of those
    in tiers, what was stored may be in the fastest tier only when a process is killed. Each sort of
    fault has folders and processes of its own, so those sorts happen side by side.

    Raises:
        WrongBytes: the store handed out something else than had been stored.
        AssertionError: it broke another promise.
    """
    report = damage_in_turn(partial(make_target, name), campaign.damaged, seed)
    with TemporaryDirectory() as folder:
        target = make_target(name, Path(folder))
    if target.is_tiered:
        report.add(slow_tiers(campaign.slow, seed))
    elif target.is_persistent:
        acts = (
            (kill_writers, campaign.killed),
            (cut_off, campaign.cut),
            (fill_medium, campaign.full),
        )

        def run(act: Callable[..., FaultReport], count: int) -> FaultReport:
            with TemporaryDirectory() as folder:
                return act(name, Path(folder), count, seed)

        with ThreadPoolExecutor(len(acts)) as pool:
            for one in [pool.submit(run, *act) for act in acts]:
                report.add(one.result())
    return report
