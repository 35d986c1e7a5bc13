"""Which figures does an engine expose about its store?

A store may consist of others, which are its *parts*. A part is called as the place in the options
that chose it, such as ``tiers.0``, the store as a whole ``store``.
"""

from __future__ import annotations

from typing import Final

from deepinfer_core.interfaces.store_report import AGE_BOUNDS_S
from deepinfer_core.telemetry.metric import Metric, counter, gauge, histogram

__all__ = [
    "PART_OUTCOMES",
    "STORE_EVICTIONS",
    "STORE_FETCHES",
    "STORE_KINDS",
    "STORE_METRICS",
    "STORE_REMOVALS",
    "STORE_UNASKED",
    "STORE_WORK",
    "STORE_WRITES",
]

STORE_FETCHES: Final = (
    "done", "miss", "corrupt", "version", "timeout", "unavailable", "full", "lost", "abandoned",
    "no_room", "failed", "left",
)  # fmt: skip
STORE_KINDS: Final = ("blocks", "state")
STORE_REMOVALS: Final = ("expired", "room", "quota", "dropped", "damaged", "discarded")
STORE_EVICTIONS: Final = ("expired", "room", "quota")
STORE_UNASKED: Final = ("in_memory", "too_short", "busy")
STORE_WRITES: Final = (
    "stored", "exists", "known", "timeout", "full", "unavailable", "orphan", "lost", "dropped",
    "failed",
)  # fmt: skip
STORE_WORK: Final = (
    "written_back", "not_written_back", "promoted", "not_promoted", "read_blocks",
    "asked_fragments", "hedged", "scrubbed", "repaired", "not_repaired", "given_up", "abandoned",
)  # fmt: skip
PART_OUTCOMES: Final = (
    "hit", "miss", "corrupt", "version", "timeout", "unavailable", "stored", "exists",
)  # fmt: skip

_PART = ("part", "component")

STORE_METRICS: Final[tuple[Metric, ...]] = (
    gauge("kv_store_usable", "1: a store can be asked; 0: it cannot now, or there is none."),
    gauge("kv_store_unusable_seconds", "For how long it cannot be asked; 0: it can."),
    counter(
        "kv_store_fetches_total",
        "Prefixes that a store was asked for, by how that ended.",
        "outcome",
        values=STORE_FETCHES,
    ),
    counter(
        "kv_store_unasked_total",
        "Requests that no store was asked for, by reason.",
        "reason",
        values=STORE_UNASKED,
    ),
    counter("kv_store_probes_total", "Blocks that a store was asked about."),
    counter("kv_store_match_seconds_total", "Time until it was known how much is stored, summed."),
    counter(
        "kv_store_match_timeouts_total",
        "Prefixes of which it was not known in time how much is stored.",
    ),
    counter("kv_store_fetch_seconds_total", "Time from then until it had come, summed."),
    counter("kv_store_fetched_blocks_total", "Blocks and states that came from a store."),
    counter("kv_store_fetched_bytes_total", "Bytes of these."),
    counter("kv_store_fetched_batches_total", "Batches in which these came."),
    counter("kv_store_fetched_states_total", "States that came and can be resumed from."),
    counter(
        "kv_store_written_blocks_total",
        "Blocks and states for a store, by what became of them.",
        "outcome",
        values=STORE_WRITES,
    ),
    gauge(
        "kv_store_pending_blocks",
        "Blocks for a store that wait to be copied from the device, or to be stored.",
        "state",
        values=("waiting", "writing"),
    ),
    gauge(
        "kv_store_kept_blocks",
        "Blocks in the store, and states in it or beside it, as it told lately.",
        "of",
        values=STORE_KINDS,
    ),
    gauge("kv_store_kept_bytes", "Bytes that they take.", "of", values=STORE_KINDS),
    gauge(
        "kv_store_capacity_bytes",
        "Bytes that they may take; 0: unknown.",
        "of",
        values=STORE_KINDS,
    ),
    gauge(
        "kv_store_high_bytes",
        "Bytes above which a sweep makes room, the watermark; 0: unknown.",
        "of",
        values=STORE_KINDS,
    ),
    counter(
        "kv_store_removed_blocks_total",
        "Blocks and states that the store removed since its fetcher started, by reason.",
        "reason",
        values=STORE_REMOVALS,
    ),
    counter("kv_store_restarts_total", "Times that the fetcher was started again."),
    counter(
        "kv_store_work_total",
        "What stores of several stores did beside calls, in blocks; of core.erasure also reads and"
        " the fragments that they asked for.",
        "kind",
        values=STORE_WORK,
    ),
    gauge("kv_store_waiting_for_repair", "Blocks that lack fragments, as far as is known."),
    gauge(
        "kv_store_part_usable",
        "1: this part of the store has no problem; 0: it has one, or is not open.",
        *_PART,
    ),
    gauge("kv_store_part_kept_blocks", "Blocks, or fragments of them, that a part keeps.", *_PART),
    gauge("kv_store_part_kept_bytes", "Bytes that they take.", *_PART),
    gauge("kv_store_part_capacity_bytes", "Bytes that they may take; 0: unknown.", *_PART),
    gauge("kv_store_part_high_bytes", "Bytes above which it makes room; 0: unknown.", *_PART),
    counter(
        "kv_store_part_blocks_total",
        "Blocks that a part was asked for or given, by outcome, since the fetcher started.",
        *_PART,
        "outcome",
    ),
    counter(
        "kv_store_part_bad_fragments_total",
        "Fragments of core.erasure that were read and found wrong, by child.",
        *_PART,
    ),
    histogram(
        "kv_store_evicted_age_seconds",
        "Time since the last use of blocks that the store removed, since its fetcher started.",
        AGE_BOUNDS_S,
        "reason",
        values=STORE_EVICTIONS,
    ),
)
"""In the order in which they are exposed."""
