"""What did an engine take from a store and give it, and why was it nothing?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from deepinfer_core.engine.stored.parts import WHOLE, Part, flat
from deepinfer_core.interfaces.store_report import AGE_BOUNDS_S, EvictedAges, StoreReport
from deepinfer_core.stores.traffic import TrafficCounts
from deepinfer_core.telemetry.board import Board
from deepinfer_core.telemetry.store_metrics import (
    PART_OUTCOMES,
    STORE_EVICTIONS,
    STORE_FETCHES,
    STORE_REMOVALS,
    STORE_UNASKED,
    STORE_WORK,
    STORE_WRITES,
)

__all__ = ["StoreCounts"]

Levels = Iterator[tuple[tuple[str, ...], float]]
"""Series of metrics and their values."""


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
        written: blocks and states that the store never saw: ``known``: it has them; ``dropped``:
            nobody had time for them; ``failed``: a copy from the device did.
        backlog: blocks that wait to be copied now.
        traffic: what the fetcher counted; of the counts that an exchange keeps, a moment ago.
        unusable_since_s: since when the store cannot be asked; monotonic clock. None: it can.
    """

    fetches: Counter[str] = field(default_factory=Counter)
    unasked: Counter[str] = field(default_factory=Counter)
    states: int = 0
    written: Counter[str] = field(default_factory=Counter)
    backlog: int = 0
    traffic: TrafficCounts = field(default_factory=TrafficCounts)
    unusable_since_s: float | None = None

    def show(self, board: Board, parts: Sequence[Part], now_s: float) -> None:
        """Set all series of a board, whose lock the caller holds; see ``levels``."""
        for series, value in self.levels(parts, now_s):
            board.number(*series).value = value
        for reason, ages in self.ages():
            shown = board.distribution("kv_store_evicted_age_seconds", reason)
            shown.counts[:], shown.total = ages.counts, ages.total_s

    def levels(self, parts: Sequence[Part], now_s: float) -> Levels:
        """The value of each series of the metrics, those of ``ages`` apart.

        Args:
            parts: stores that there are.
            now_s: monotonic clock.
        """
        traffic, since_s = self.traffic, self.unusable_since_s
        yield ("kv_store_usable",), float(not traffic.problem)
        yield ("kv_store_unusable_seconds",), 0.0 if since_s is None else max(0.0, now_s - since_s)
        for name in STORE_FETCHES:
            yield ("kv_store_fetches_total", name), self.fetches[name]
        for name in STORE_UNASKED:
            yield ("kv_store_unasked_total", name), self.unasked[name]
        yield ("kv_store_probes_total",), traffic.probes
        yield ("kv_store_match_seconds_total",), traffic.match_s
        yield ("kv_store_match_timeouts_total",), traffic.match_timeouts
        yield ("kv_store_fetch_seconds_total",), traffic.fetch_s
        yield ("kv_store_fetched_blocks_total",), traffic.fetched_blocks
        yield ("kv_store_fetched_bytes_total",), traffic.fetched_bytes
        yield ("kv_store_fetched_batches_total",), traffic.fetched_batches
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
            yield ("kv_store_high_bytes", name), report.high_bytes
        for name in STORE_REMOVALS:
            removed = (report.removed.get(name, 0) for report in traffic.stores.values())
            yield ("kv_store_removed_blocks_total", name), sum(removed)
        whole = traffic.stores.get("blocks", StoreReport(problem="nothing was told yet"))
        for kind in STORE_WORK:
            yield ("kv_store_work_total", kind), whole.work.get(kind, 0)
        yield ("kv_store_waiting_for_repair",), whole.work.get("waiting_for_repair", 0)
        reports = flat(whole)
        for part in parts:
            yield from _of_part(part, reports.get(part.name, StoreReport(problem="it is not open")))
        for part, wrong in _bad_fragments(parts, reports):
            yield ("kv_store_part_bad_fragments_total", *part), wrong

    def ages(self) -> Iterator[tuple[str, EvictedAges]]:
        """Ages of what stores removed, for each reason of the metric."""
        for reason in STORE_EVICTIONS:
            found = [
                report.ages[reason]
                for report in self.traffic.stores.values()
                if reason in report.ages
            ]
            counts = [sum(one) for one in zip(*(ages.counts for ages in found), strict=True)]
            yield (
                reason,
                EvictedAges(
                    counts=tuple(counts or [0] * (len(AGE_BOUNDS_S) + 1)),
                    total_s=sum(ages.total_s for ages in found),
                ),
            )


def _of_part(part: Part, report: StoreReport) -> Levels:
    yield ("kv_store_part_usable", *part), float(not report.problem)
    yield ("kv_store_part_kept_blocks", *part), report.records
    yield ("kv_store_part_kept_bytes", *part), report.used_bytes
    yield ("kv_store_part_capacity_bytes", *part), report.capacity_bytes
    yield ("kv_store_part_high_bytes", *part), report.high_bytes
    for outcome in PART_OUTCOMES:
        blocks = report.outcomes.get(outcome, 0)
        yield ("kv_store_part_blocks_total", *part, outcome), blocks


def _bad_fragments(
    parts: Sequence[Part], reports: Mapping[str, StoreReport]
) -> Iterator[tuple[Part, int]]:
    """Wrong fragments of each part, which the store that the part belongs to counts."""
    for part in parts:
        above, _, number = part.name.rpartition("children.")
        owner = reports.get(above.rstrip(".") or WHOLE)
        work = owner.work if owner is not None else {}
        yield part, work.get(f"bad_fragments_{number}", 0)
