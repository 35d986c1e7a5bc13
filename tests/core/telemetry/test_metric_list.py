"""Are the names that dashboards hold the known ones, and are all of them documented?"""

import re
from pathlib import Path
from typing import get_args

import pytest
from deepinfer_core.engine.outputs import FinishReason
from deepinfer_core.interfaces.store_report import AGE_BOUNDS_S
from deepinfer_core.telemetry.metric import Metric
from deepinfer_core.telemetry.metric_list import FINISH_REASONS, METRICS, STEP_KINDS

GOLDEN = {
    "deepinfer_build_info gauge version model",
    "deepinfer_component_info gauge slot component",
    "deepinfer_requests_running gauge",
    "deepinfer_requests_waiting gauge",
    "deepinfer_kv_cache_usage_ratio gauge",
    "deepinfer_kv_cache_blocks gauge state",
    "deepinfer_state_slots gauge state",
    "deepinfer_requests_total counter",
    "deepinfer_requests_finished_total counter reason",
    "deepinfer_requests_aborted_total counter",
    "deepinfer_preemptions_total counter",
    "deepinfer_prompt_tokens_total counter",
    "deepinfer_prompt_cached_tokens_total counter",
    "deepinfer_prompt_replayed_tokens_total counter",
    "deepinfer_prompt_stored_tokens_total counter",
    "deepinfer_prompt_source_tokens_total counter class source",
    "deepinfer_prompt_states_total counter where",
    "deepinfer_generation_tokens_total counter",
    "deepinfer_draft_rounds_total counter",
    "deepinfer_draft_tokens_total counter place",
    "deepinfer_accepted_draft_tokens_total counter place",
    "deepinfer_rows_total counter phase",
    "deepinfer_prefix_cache_lookups_total counter",
    "deepinfer_prefix_cache_hit_blocks_total counter",
    "deepinfer_prefix_cache_evicted_blocks_total counter",
    "deepinfer_prefix_cache_evicted_snapshots_total counter",
    "deepinfer_kv_store_usable gauge",
    "deepinfer_kv_store_unusable_seconds gauge",
    "deepinfer_kv_store_match_timeouts_total counter",
    "deepinfer_kv_store_fetched_batches_total counter",
    "deepinfer_kv_store_high_bytes gauge of",
    "deepinfer_kv_store_work_total counter kind",
    "deepinfer_kv_store_waiting_for_repair gauge",
    "deepinfer_kv_store_part_usable gauge part component",
    "deepinfer_kv_store_part_kept_blocks gauge part component",
    "deepinfer_kv_store_part_kept_bytes gauge part component",
    "deepinfer_kv_store_part_capacity_bytes gauge part component",
    "deepinfer_kv_store_part_high_bytes gauge part component",
    "deepinfer_kv_store_part_blocks_total counter part component outcome",
    "deepinfer_kv_store_part_bad_fragments_total counter part component",
    "deepinfer_kv_store_evicted_age_seconds histogram reason",
    "deepinfer_kv_store_fetches_total counter outcome",
    "deepinfer_kv_store_unasked_total counter reason",
    "deepinfer_kv_store_probes_total counter",
    "deepinfer_kv_store_match_seconds_total counter",
    "deepinfer_kv_store_fetch_seconds_total counter",
    "deepinfer_kv_store_fetched_blocks_total counter",
    "deepinfer_kv_store_fetched_bytes_total counter",
    "deepinfer_kv_store_fetched_states_total counter",
    "deepinfer_kv_store_written_blocks_total counter outcome",
    "deepinfer_kv_store_pending_blocks gauge state",
    "deepinfer_kv_store_kept_blocks gauge of",
    "deepinfer_kv_store_kept_bytes gauge of",
    "deepinfer_kv_store_capacity_bytes gauge of",
    "deepinfer_kv_store_removed_blocks_total counter reason",
    "deepinfer_kv_store_restarts_total counter",
    "deepinfer_late_kernels_total counter",
    "deepinfer_grammars gauge state",
    "deepinfer_grammar_cache_hits_total counter",
    "deepinfer_grammar_cache_misses_total counter",
    "deepinfer_queue_seconds histogram",
    "deepinfer_time_to_first_token_seconds histogram",
    "deepinfer_inter_token_latency_seconds histogram",
    "deepinfer_request_seconds histogram",
    "deepinfer_request_prompt_tokens histogram",
    "deepinfer_request_generation_tokens histogram",
    "deepinfer_step_rows histogram",
    "deepinfer_step_seconds histogram kind",
    "deepinfer_step_schedule_seconds histogram",
    "deepinfer_step_wait_seconds histogram",
    "deepinfer_step_output_seconds histogram",
    "deepinfer_step_send_seconds histogram",
    "deepinfer_grammar_compile_seconds histogram",
}
"""A name leaves this list two minor versions after its successor entered it."""

CONFIGURED = {"class", "part"}
"""Labels whose values the configuration says: classes of traffic, and stores."""

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"

each_metric = pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)


def bounds_shown(metric: Metric) -> str:
    if not metric.bounds:
        return ""
    second = metric.bounds[1] / metric.bounds[0]
    steps = "powers of 2" if second == 2 and metric.bounds[2] / metric.bounds[1] == 2 else "1, 2, 5"
    if metric.bounds == AGE_BOUNDS_S:
        steps = "a minute to two weeks"
    return f"{metric.bounds[0]:g} .. {metric.bounds[-1]:g}, {steps}"


def row(metric: Metric) -> str:
    """The line of the page's table that says what the metric is."""
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    if metric.values:
        labels += ": " + " ".join(f"`{value}`" for value in metric.values)
    cells = (f"`{metric.full_name}`", metric.kind, labels, metric.help, bounds_shown(metric))
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def test_names_kinds_and_labels_are_the_known_ones() -> None:
    assert {" ".join((one.full_name, one.kind, *one.labels)) for one in METRICS} == GOLDEN
    assert len(METRICS) == len(GOLDEN)


def test_the_page_has_exactly_these_metrics_in_this_order() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    shown = [line for line in lines if line.startswith("| `deepinfer_")]
    assert shown == [row(metric) for metric in METRICS]


@each_metric
def test_a_suffix_says_what_the_kind_is(metric: Metric) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert not metric.name.endswith(("_bucket", "_count", "_sum", "_created"))


@each_metric
def test_buckets_ascend_and_only_histograms_have_them(metric: Metric) -> None:
    assert bool(metric.bounds) == (metric.kind == "histogram")
    assert list(metric.bounds) == sorted(set(metric.bounds))


@each_metric
def test_label_values_are_known_beforehand(metric: Metric) -> None:
    if metric.name.endswith("_info") or set(metric.labels) & CONFIGURED:
        assert not metric.values
    else:
        assert len(metric.labels) == bool(metric.values)
        assert len(metric.values) <= 12


def test_every_reason_to_end_has_a_series() -> None:
    assert get_args(FinishReason) == FINISH_REASONS


def test_bounds_are_the_decimal_numbers_that_they_show() -> None:
    [queue] = [metric for metric in METRICS if metric.name == "queue_seconds"]
    assert queue.bounds[:4] == (0.001, 0.002, 0.005, 0.01)
    assert queue.bounds[-1] == 500.0


def test_kinds_of_step_are_those_that_compute_something() -> None:
    assert STEP_KINDS == ("prefill", "decode", "mixed")
