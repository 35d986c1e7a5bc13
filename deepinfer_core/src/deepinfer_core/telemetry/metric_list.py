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
from deepinfer_core.telemetry.store_metrics import STORE_METRICS

__all__ = [
    "DRAFT_PLACES",
    "FINISH_REASONS",
    "METRICS",
    "PROMPT_SOURCES",
    "STATE_PLACES",
    "STEP_KINDS",
]

FINISH_REASONS: Final = ("stop", "length", "abort", "error")
STEP_KINDS: Final = ("prefill", "decode", "mixed")
PROMPT_SOURCES: Final = ("computed", "host", "store", "peer", "replayed")
STATE_PLACES: Final = ("local", "peer", "missed")
DRAFT_PLACES: Final = ("1", "2", "3", "4", "5", "6", "7", "later")

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
    counter(
        "prompt_source_tokens_total",
        "Tokens of the prompts of requests that ended, by class of traffic and what became of them:"
        " computed, or found in the engine's memory (host), a store or other machines' memory"
        " (peer), or found and fed again (replayed).",
        "class",
        "source",
    ),
    counter(
        "prompt_states_total",
        "Prompts that found a prefix, by where the state at its end lay; missed: nowhere, so rows"
        " were fed again.",
        "where",
        values=STATE_PLACES,
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
    *STORE_METRICS,
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
