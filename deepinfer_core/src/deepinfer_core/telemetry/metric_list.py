"""Which figures does an engine expose, and what exactly does each one mean?

Names, labels and buckets are an interface: dashboards hold them. A renamed metric keeps its old
name beside the new one for two minor versions. Suffixes are those of the Prometheus conventions:
``_total`` for what only grows, ``_seconds`` and ``_ratio`` for units; the prefix is ours.

A label never holds what a user wrote, and its values are known before the first request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["DRAFT_PLACES", "FINISH_REASONS", "METRICS", "PREFIX", "STEP_KINDS", "Metric"]

PREFIX: Final = "deepinfer_"

FINISH_REASONS: Final = ("stop", "length", "abort", "error")
STEP_KINDS: Final = ("prefill", "decode", "mixed")
DRAFT_PLACES: Final = ("1", "2", "3", "4", "5", "6", "7", "later")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric.

    Attributes:
        name: without the prefix.
        kind: what may happen to it.
        help: what is measured, and when.
        labels: names of its labels.
        values: every value of its only label; empty with no label, and where the labels describe
            the engine itself, so that there is one series for each thing described.
        bounds: upper bounds of the buckets of a histogram, ascending; above the last all is one.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        """The name that a scraper sees."""
        return PREFIX + self.name


def _steps(first: int, last: int) -> tuple[float, ...]:
    """1, 2 and 5 of each power of ten, exact as decimal numbers."""
    return tuple(float(f"{d}e{power}") for power in range(first, last + 1) for d in (1, 2, 5))


def _powers(last: int) -> tuple[float, ...]:
    return tuple(float(1 << power) for power in range(last + 1))


_OVERHEAD_S = _steps(-5, -2)
_STEP_S = _steps(-4, 1)
_REQUEST_S = _steps(-3, 2)
_TOKENS = _powers(20)
_ROWS = _powers(14)


def _counter(name: str, text: str, label: str = "", values: tuple[str, ...] = ()) -> Metric:
    labels = (label,) if label else ()
    return Metric(name=name, kind="counter", help=text, labels=labels, values=values)


def _gauge(name: str, text: str, label: str = "", values: tuple[str, ...] = ()) -> Metric:
    labels = (label,) if label else ()
    return Metric(name=name, kind="gauge", help=text, labels=labels, values=values)


def _histogram(
    name: str, text: str, bounds: tuple[float, ...], label: str = "", values: tuple[str, ...] = ()
) -> Metric:
    labels = (label,) if label else ()
    return Metric(
        name=name, kind="histogram", help=text, labels=labels, values=values, bounds=bounds
    )


METRICS: Final[tuple[Metric, ...]] = (
    Metric(
        name="build_info",
        kind="gauge",
        help="Always 1; says which version serves which model.",
        labels=("version", "model"),
    ),
    Metric(
        name="component_info",
        kind="gauge",
        help="Always 1; says which component fills each slot.",
        labels=("slot", "component"),
    ),
    _gauge("requests_running", "Sequences that hold a state slot."),
    _gauge("requests_waiting", "Sequences that wait for their turn, preempted ones included."),
    _gauge("kv_cache_usage_ratio", "Share of the usable blocks that sequences hold."),
    _gauge(
        "kv_cache_blocks",
        "Usable blocks: held by sequences, kept only for their contents, or empty.",
        "state",
        ("used", "idle", "free"),
    ),
    _gauge(
        "state_slots",
        "Usable state slots: held by sequences, holding a snapshot, or empty.",
        "state",
        ("used", "snapshot", "free"),
    ),
    _counter("requests_total", "Requests that were accepted; each of n answers is one."),
    _counter(
        "requests_finished_total", "Requests that ended, by reason.", "reason", FINISH_REASONS
    ),
    _counter("requests_aborted_total", "Requests that their caller ended, in any state."),
    _counter("preemptions_total", "Times that a running sequence lost its blocks and waited."),
    _counter("prompt_tokens_total", "Tokens of the prompts of requests that ended."),
    _counter("prompt_cached_tokens_total", "Those of them that were found in the cache."),
    _counter("prompt_replayed_tokens_total", "Those of them that were fed again after a hit."),
    _counter("generation_tokens_total", "Tokens drawn, counted in the step that drew them."),
    _counter("draft_rounds_total", "Times that drafts of one sequence were verified."),
    _counter(
        "draft_tokens_total",
        "Drafts verified, by their place behind the last token.",
        "place",
        DRAFT_PLACES,
    ),
    _counter(
        "accepted_draft_tokens_total", "Those of them that were accepted.", "place", DRAFT_PLACES
    ),
    _counter(
        "rows_total",
        "Rows computed: of prompts, recomputed and replayed ones included, and of decoding.",
        "phase",
        ("prompt", "decode"),
    ),
    _counter("prefix_cache_lookups_total", "Prompts that were looked up in the prefix cache."),
    _counter("prefix_cache_hit_blocks_total", "Blocks that lookups took over."),
    _counter("prefix_cache_evicted_blocks_total", "Cached blocks that made room for others."),
    _counter("prefix_cache_evicted_snapshots_total", "Snapshots that made room for others."),
    _counter("late_kernels_total", "Kernels compiled or loaded after the engine was ready."),
    _gauge(
        "grammars",
        "Grammars that wait for their turn to be compiled, and those that have it.",
        "state",
        ("waiting", "compiling"),
    ),
    _counter(
        "grammar_cache_hits_total",
        "Requests whose grammar had been compiled, or refused, before.",
    ),
    _counter("grammar_cache_misses_total", "Requests whose grammar was to be compiled."),
    _histogram("queue_seconds", "From arrival until the first row is scheduled.", _REQUEST_S),
    _histogram(
        "time_to_first_token_seconds",
        "From arrival to the first token, counted when it is drawn.",
        _REQUEST_S,
    ),
    _histogram(
        "inter_token_latency_seconds",
        "Between two tokens of one request, 0 within a step; one for each token but the first.",
        _STEP_S,
    ),
    _histogram("request_seconds", "From arrival to the end, whatever the reason.", _REQUEST_S),
    _histogram("request_prompt_tokens", "Prompt length of requests that ended.", _TOKENS),
    _histogram("request_generation_tokens", "Tokens drawn for requests that ended.", _TOKENS),
    _histogram("step_rows", "Rows of a step.", _ROWS),
    _histogram(
        "step_seconds",
        "A whole step: deciding, computing and handling of its outputs.",
        _STEP_S,
        "kind",
        STEP_KINDS,
    ),
    _histogram("step_schedule_seconds", "Deciding a step and launching its parts.", _OVERHEAD_S),
    _histogram("step_wait_seconds", "Waiting of the step loop for a step's results.", _STEP_S),
    _histogram("step_output_seconds", "Turning a step's results into outputs.", _OVERHEAD_S),
    _histogram(
        "step_send_seconds",
        "Packing what a step gave and handing it to the service's process.",
        _OVERHEAD_S,
    ),
    _histogram(
        "grammar_compile_seconds",
        "Compiling a grammar, in all its turns, whatever came of it; waiting is not in it.",
        _REQUEST_S,
    ),
)
"""Every metric of an engine, in the order in which it is exposed."""
