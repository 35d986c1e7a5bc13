"""What is left of blocks, slots and descriptors when a fetcher or its engine is killed?

``FetcherKills`` is an engine whose fetcher is killed at any moment while blocks travel both ways,
time after time; the store is on a disk, so that what was stored before comes back. Run as a
program, the module is an engine that is to be killed itself.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deepinfer_core.channel.restarts import Restarts
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.stores.fetcher.engine_end import FetcherTraffic
from deepinfer_core.stores.fetcher.options import TrafficOptions
from deepinfer_core.stores.traffic import Arrived, Ended, Finished, Found, Wanted
from deepinfer_core.testing.contracts.kv_store_suite import block, key
from deepinfer_core.testing.process_facts import is_running, open_descriptors, shared_segments
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER, STATES
from deepinfer_core.testing.unruly_store import UnrulyOptions, build, resolved_unruly

__all__ = ["FetcherKills", "KillReport", "kill_engine"]

_CHAINS, _LENGTH = 6, 40
"""Chains of blocks that travel."""

_WAIT_S = 60.0
_START_S = 0.5
"""About as long as a fetcher takes to start."""

_NAMESPACE = b"n" * 32
_SIZES = TrafficOptions(arriving_bytes=1 << 19, departing_bytes=1 << 18)


@dataclass(slots=True, kw_only=True)
class KillReport:
    """What was seen.

    Attributes:
        kills: of fetchers.
        ended: prefixes by how they ended.
        arrived: blocks that came, all as they were stored.
        written: blocks handed over, by outcome.
        kept: blocks of the store in the end, all as they were stored.
    """

    kills: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    arrived: int = 0
    written: Counter[str] = field(default_factory=Counter)
    kept: int = 0


class FetcherKills:
    """An engine at work whose fetcher is killed.

    Args:
        folder: of the store; empty.
        seed: of all that happens.

    Raises:
        AssertionError: from its methods, if something is wrong or left behind.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.report = KillReport()
        self._folder, self._random = folder, random.Random(seed)
        self._open: dict[int, int] = {}
        self._traffic = FetcherTraffic(
            resolved_unruly(folder=str(folder), is_persistent=True),
            [BLOCKS, STATES],
            _SIZES,
            restarts=Restarts(first_wait_s=0.0, longest_wait_s=0.0, most=1 << 30),
        )
        self._slots = self._all_slots()
        self._before, self._threads = open_descriptors(), threading.active_count()
        self._segments = shared_segments(os.getpid())  # others of this process may go meanwhile

    def round(self) -> None:
        """Work, kill at a random moment, and look at what is left."""
        kill_s = time.monotonic() + self._random.choice((0.0, 0.002, 0.01, 0.05))
        while time.monotonic() < kill_s or not self._open:
            self.work()
        due = self._traffic.counts().restarts + 1
        killed = self._kill()
        for _ in range(self._random.randrange(3)):
            self.work()  # an engine does not know yet
        if self._random.random() < 0.3:  # the next one as well, while it starts
            self._until(lambda: self._traffic.process_id not in (None, killed))
            time.sleep(self._random.random() * _START_S)
            self._kill()
            due += 1  # or the next round would find nobody to kill
        self._until(lambda: self._traffic.counts().restarts >= due)
        self._until(lambda: not self._traffic.counts().problem)
        self._until(lambda: not self._open)
        self._until(lambda: not self._traffic.counts().writing)
        assert self._all_slots() == self._slots
        assert open_descriptors() == self._before
        assert shared_segments(os.getpid()) <= self._segments
        assert threading.active_count() == self._threads

    def work(self) -> None:
        """Do something that an engine does."""
        self._look()
        chain, group = self._random.randrange(_CHAINS), self._random.choice((BLOCKS, STATES))
        if self._random.random() < 0.5:
            places = range(self._random.choice((0, self._random.randrange(_LENGTH))), _LENGTH)
            self._hand_over(chain, places, group.name)
            return
        ticket = self._want(chain, "state")
        if self._random.random() < 0.1:
            self._traffic.cancel(ticket)
            del self._open[ticket]

    def prove(self) -> None:
        """Without being killed: each whole chain is stored, and comes."""
        for chain in range(_CHAINS):
            for place in range(_LENGTH):
                self._until(lambda: self._traffic.counts().writing < self._slots["blocks"])
                self._hand_over(chain, [place], "blocks")
            self._until(lambda: not self._traffic.counts().writing)
            before = self.report.arrived
            self._want(chain, None)
            self._until(lambda: not self._open)
            assert self.report.arrived == before + _LENGTH

    def close(self) -> None:
        """End, and look at every block that is in the store."""
        counts = self._traffic.counts()
        self._traffic.close()
        self.report.written.update(counts.written)
        self.report.kept = whole_blocks(self._folder)
        assert shared_segments(os.getpid()) <= self._segments  # its own view goes with it

    @property
    def blocks(self) -> int:
        """All that there are."""
        return _CHAINS * _LENGTH

    @property
    def fetcher_id(self) -> int:
        """Of the fetcher's process."""
        return _existing(self._traffic.process_id)

    def _kill(self) -> int:
        killed = _existing(self._traffic.process_id)
        os.kill(killed, signal.SIGKILL)
        self.report.kills += 1
        return killed

    def _want(self, chain: int, state_group: str | None) -> int:
        ticket = self._traffic.want(
            Wanted(
                keys=tuple(key((chain, place)) for place in range(_LENGTH)),
                retention="chat",
                group="blocks",
                state_group=state_group,
                match_s=_WAIT_S,
                fetch_s=_WAIT_S,
            )
        )
        self._open[ticket] = chain
        return ticket

    def _hand_over(self, chain: int, places: Sequence[int], group: str) -> None:
        slots = self._traffic.empty_slots(group, len(places))
        finished: list[Finished] = []
        for place, slot in zip(places, slots, strict=False):
            slot.view[:] = block((chain, place), self._traffic.groups[group])
            parent = finished[-1].key if finished else b""
            finished.append(Finished(slot, key((chain, place)), _NAMESPACE, place, "chat", parent))
        self._traffic.hand_over(finished)

    def _look(self) -> None:
        for one in self._traffic.poll():
            chain = self._open[one.ticket]
            if isinstance(one, Arrived):
                for place, slot in enumerate(one.slots, one.first):
                    group = self._traffic.groups[slot.group]
                    assert slot.view == block((chain, place), group), f"block {place} is wrong"
                self.report.arrived += len(one.slots)
                self._traffic.give_back(one.slots)
            elif isinstance(one, Ended):
                self.report.ended[one.reason] += 1
                del self._open[one.ticket]
            else:
                assert isinstance(one, Found)

    def _until(self, is_so: Callable[[], object]) -> None:
        by_s = time.monotonic() + _WAIT_S
        while not is_so():
            assert time.monotonic() < by_s, f"waits for {is_so}: {self._traffic.counts()}"
            self._traffic.wait(0.005)
            self._look()

    def _all_slots(self) -> dict[str, int]:
        """How many slots to be filled there are."""
        found = {name: self._traffic.empty_slots(name, 1 << 20) for name in self._traffic.groups}
        for slots in found.values():
            self._traffic.give_back(slots)
        return {name: len(slots) for name, slots in found.items()}


def whole_blocks(folder: Path) -> int:
    """How many blocks a store holds; each must be as it was stored.

    Raises:
        AssertionError: one is not.
    """
    context = BuildContext(device="cpu", needs=ModelNeeds())
    store = build(UnrulyOptions(folder=str(folder), is_persistent=True), context)
    store.open([BLOCKS])
    found = 0
    try:
        for name in ((chain, place) for chain in range(_CHAINS) for place in range(_LENGTH)):
            data = bytearray(BLOCKS.block_bytes)
            (outcome,) = store.load("blocks", [key(name)], [data], deadline_s=FOREVER)
            assert outcome.status in ("hit", "miss"), outcome
            if outcome.status == "hit":
                assert data == block(name), f"block {name} is wrong"
                found += 1
    finally:
        store.close()
    return found


def kill_engine(folder: Path, seed: int, after_s: float) -> int:
    """Kill an engine at work; its fetcher must end, and the store be whole.

    Returns:
        Blocks that are in the store.

    Raises:
        AssertionError: the fetcher goes on, or a block is wrong.
    """
    engine = subprocess.Popen(
        [sys.executable, "-m", __name__, str(folder), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert engine.stdout is not None
    with engine.stdout:
        fetcher = int(engine.stdout.readline())
        time.sleep(after_s)
        engine.kill()
        engine.wait()
    by_s = time.monotonic() + _WAIT_S
    while is_running(fetcher):
        assert time.monotonic() < by_s, "the fetcher outlives its engine"
        time.sleep(0.005)
    return whole_blocks(folder)


def _existing(process_id: int | None) -> int:
    assert process_id is not None
    return process_id


def main() -> None:
    """Be an engine at work, until the end."""
    kills = FetcherKills(Path(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.write(f"{kills.fetcher_id}\n")
    sys.stdout.flush()
    while True:
        kills.work()


if __name__ == "__main__":
    main()
