"""What did an engine take from a store and give it, and why was it nothing?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from deepinfer_core.stores.traffic import TrafficCounts
from deepinfer_core.telemetry.metric_list import (
    STORE_FETCHES,
    STORE_REMOVALS,
    STORE_UNASKED,
    STORE_WRITES,
)

__all__ = ["StoreCounts"]


@dataclass(slots=True)
class StoreCounts:
    """Figures since the engine was made; only the engine's thread changes them.

    Attributes:
        fetches: by how they ended: what ``Ended`` says; ``abandoned``: computing is quicker by now;
            ``no_room``: blocks are short; ``failed``: a copy to the device did; ``left``: the
            request ended.
        unasked: sequences that the store was not asked for: all that they may reuse is cached
            (``in_memory``), or is no block (``too_short``), or there are too many fetches or too
            few blocks (``busy``).
        states: that came.
        written: blocks and states that the store never saw: ``dropped``: nobody had time for them;
            ``failed``: a copy from the device did.
        backlog: blocks that wait to be copied now.
        traffic: what the fetcher counted, a moment ago.
    """

    fetches: Counter[str] = field(default_factory=Counter)
    unasked: Counter[str] = field(default_factory=Counter)
    states: int = 0
    written: Counter[str] = field(default_factory=Counter)
    backlog: int = 0
    traffic: TrafficCounts = field(default_factory=TrafficCounts)

    def levels(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """The value of each series of the metrics."""
        traffic = self.traffic
        yield ("kv_store_usable",), float(not traffic.problem)
        for name in STORE_FETCHES:
            yield ("kv_store_fetches_total", name), self.fetches[name]
        for name in STORE_UNASKED:
            yield ("kv_store_unasked_total", name), self.unasked[name]
        yield ("kv_store_probes_total",), traffic.probes
        yield ("kv_store_match_seconds_total",), traffic.match_s
        yield ("kv_store_fetch_seconds_total",), traffic.fetch_s
        yield ("kv_store_fetched_blocks_total",), traffic.fetched_blocks
        yield ("kv_store_fetched_bytes_total",), traffic.fetched_bytes
        yield ("kv_store_fetched_states_total",), self.states
        for name in STORE_WRITES:
            count = self.written[name] + traffic.written.get(name, 0)
            yield ("kv_store_written_blocks_total", name), count
        yield ("kv_store_pending_blocks", "waiting"), self.backlog
        yield ("kv_store_pending_blocks", "writing"), traffic.writing
        yield ("kv_store_restarts_total",), traffic.restarts
        for name, report in traffic.stores.items():
            yield ("kv_store_kept_blocks", name), report.records
            yield ("kv_store_kept_bytes", name), report.used_bytes
            yield ("kv_store_capacity_bytes", name), report.capacity_bytes
        for name in STORE_REMOVALS:
            removed = (report.removed.get(name, 0) for report in traffic.stores.values())
            yield ("kv_store_removed_blocks_total", name), sum(removed)
