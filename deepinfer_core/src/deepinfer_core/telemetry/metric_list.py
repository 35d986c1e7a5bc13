"""Which figures does an engine expose, and what exactly does each one mean?

``metric`` says what holds for their names and labels.
"""

from __future__ import annotations

from typing import Final

from deepinfer_core.telemetry.metric import (
    REQUEST_S,
    Metric,
    counter,
    gauge,
    histogram,
    powers_of_two,
    steps_of_ten,
)

__all__ = [
    "DRAFT_PLACES",
    "FINISH_REASONS",
    "METRICS",
    "STEP_KINDS",
    "STORE_FETCHES",
    "STORE_KINDS",
    "STORE_REMOVALS",
    "STORE_UNASKED",
    "STORE_WRITES",
]

FINISH_REASONS: Final = ("stop", "length", "abort", "error")
STEP_KINDS: Final = ("prefill", "decode", "mixed")
DRAFT_PLACES: Final = ("1", "2", "3", "4", "5", "6", "7", "later")

STORE_FETCHES: Final = (
    "done", "miss", "corrupt", "version", "timeout", "unavailable", "full", "lost", "abandoned",
    "no_room", "failed", "left",
)  # fmt: skip
STORE_KINDS: Final = ("blocks", "state")
STORE_REMOVALS: Final = ("expired", "room", "quota", "dropped", "damaged", "discarded")
STORE_UNASKED: Final = ("in_memory", "too_short", "busy")
STORE_WRITES: Final = (
    "stored", "exists", "timeout", "unavailable", "lost", "dropped", "failed",
)  # fmt: skip

_OVERHEAD_S = steps_of_ten(-5, -2)
_STEP_S = steps_of_ten(-4, 1)
_TOKENS = powers_of_two(20)
_ROWS = powers_of_two(14)

METRICS: Final[tuple[Metric, ...]] = (
    gauge("build_info", "Always 1; says which version serves which model.", "version", "model"),
    gauge(
        "component_info",
        "Always 1; says which component fills each slot.",
        "slot",
        "component",
    ),
    gauge("requests_running", "Sequences that hold a state slot."),
    gauge("requests_waiting", "Sequences that wait for their turn, preempted ones included."),
    gauge("kv_cache_usage_ratio", "Share of the usable blocks that sequences hold."),
    gauge(
        "kv_cache_blocks",
        "Usable blocks: held by sequences, kept only for their contents, or empty.",
        "state",
        values=("used", "idle", "free"),
    ),
    gauge(
        "state_slots",
        "Usable state slots: held by sequences, holding a snapshot, or empty.",
        "state",
        values=("used", "snapshot", "free"),
    ),
    counter("requests_total", "Requests that were accepted; each of n answers is one."),
    counter(
        "requests_finished_total",
        "Requests that ended, by reason.",
        "reason",
        values=FINISH_REASONS,
    ),
    counter("requests_aborted_total", "Requests that their caller ended, in any state."),
    counter("preemptions_total", "Times that a running sequence lost its blocks and waited."),
    counter("prompt_tokens_total", "Tokens of the prompts of requests that ended."),
    counter("prompt_cached_tokens_total", "Those of them that were found in the cache."),
    counter("prompt_replayed_tokens_total", "Those of them that were fed again after a hit."),
    counter(
        "prompt_stored_tokens_total",
        "Those of the cached ones that came from a store for their request.",
    ),
    counter("generation_tokens_total", "Tokens drawn, counted in the step that drew them."),
    counter("draft_rounds_total", "Times that drafts of one sequence were verified."),
    counter(
        "draft_tokens_total",
        "Drafts verified, by their place behind the last token.",
        "place",
        values=DRAFT_PLACES,
    ),
    counter(
        "accepted_draft_tokens_total",
        "Those of them that were accepted.",
        "place",
        values=DRAFT_PLACES,
    ),
    counter(
        "rows_total",
        "Rows computed: of prompts, recomputed and replayed ones included, and of decoding.",
        "phase",
        values=("prompt", "decode"),
    ),
    counter("prefix_cache_lookups_total", "Prompts that were looked up in the prefix cache."),
    counter("prefix_cache_hit_blocks_total", "Blocks that lookups took over."),
    counter("prefix_cache_evicted_blocks_total", "Cached blocks that made room for others."),
    counter("prefix_cache_evicted_snapshots_total", "Snapshots that made room for others."),
    gauge("kv_store_usable", "1: a store can be asked; 0: it cannot now, or there is none."),
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
    counter("kv_store_fetch_seconds_total", "Time from then until it had come, summed."),
    counter("kv_store_fetched_blocks_total", "Blocks and states that came from a store."),
    counter("kv_store_fetched_bytes_total", "Bytes of these."),
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
    counter(
        "kv_store_removed_blocks_total",
        "Blocks and states that the store removed since its fetcher started, by reason.",
        "reason",
        values=STORE_REMOVALS,
    ),
    counter("kv_store_restarts_total", "Times that the fetcher was started again."),
    counter("late_kernels_total", "Kernels compiled or loaded after the engine was ready."),
    gauge(
        "grammars",
        "Grammars that wait for their turn to be compiled, and those that have it.",
        "state",
        values=("waiting", "compiling"),
    ),
    counter(
        "grammar_cache_hits_total",
        "Requests whose grammar had been compiled, or refused, before.",
    ),
    counter("grammar_cache_misses_total", "Requests whose grammar was to be compiled."),
    histogram("queue_seconds", "From arrival until the first row is scheduled.", REQUEST_S),
    histogram(
        "time_to_first_token_seconds",
        "From arrival to the first token, counted when it is drawn.",
        REQUEST_S,
    ),
    histogram(
        "inter_token_latency_seconds",
        "Between two tokens of one request, 0 within a step; one for each token but the first.",
        _STEP_S,
    ),
    histogram("request_seconds", "From arrival to the end, whatever the reason.", REQUEST_S),
    histogram("request_prompt_tokens", "Prompt length of requests that ended.", _TOKENS),
    histogram("request_generation_tokens", "Tokens drawn for requests that ended.", _TOKENS),
    histogram("step_rows", "Rows of a step.", _ROWS),
    histogram(
        "step_seconds",
        "A whole step: deciding, computing and handling of its outputs.",
        _STEP_S,
        "kind",
        values=STEP_KINDS,
    ),
    histogram("step_schedule_seconds", "Deciding a step and launching its parts.", _OVERHEAD_S),
    histogram("step_wait_seconds", "Waiting of the step loop for a step's results.", _STEP_S),
    histogram("step_output_seconds", "Turning a step's results into outputs.", _OVERHEAD_S),
    histogram(
        "step_send_seconds",
        "Packing what a step gave and handing it to the service's process.",
        _OVERHEAD_S,
    ),
    histogram(
        "grammar_compile_seconds",
        "Compiling a grammar, in all its turns, whatever came of it; waiting is not in it.",
        REQUEST_S,
    ),
)
"""Every metric of an engine, in the order in which it is exposed."""
