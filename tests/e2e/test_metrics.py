"""Does a user of ``LLM`` see what it does, and only what may be seen?"""

import gc
import logging
import threading
import weakref
from collections.abc import Callable

import pytest
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import EngineError

import deepinfer_core

MakeLLM = Callable[..., LLM]

FOUR = SamplingParams(max_tokens=4, ignore_eos=True, seed=1)


def value(llm: LLM, name: str, **labels: str) -> float | None:
    return llm.metrics.get_sample_value(f"deepinfer_{name}", labels)


def test_metrics_tell_what_was_generated(make_llm: MakeLLM) -> None:
    llm = make_llm()
    llm.generate(["one", "three"], FOUR)
    # A beginning-of-sequence token and one for each byte.
    assert value(llm, "prompt_tokens_total") == 4 + 6
    assert value(llm, "generation_tokens_total") == 8
    assert value(llm, "requests_finished_total", reason="length") == 2
    assert value(llm, "requests_running") == 0


def test_the_text_form_says_what_runs_and_never_what_was_asked(make_llm: MakeLLM) -> None:
    llm = make_llm()
    llm.generate("xyzzy", FOUR)
    text = llm.metrics_text()
    assert f'version="{deepinfer_core.__version__}"' in text
    picked = llm.loaded.resolution.report.picked()["sampler"]
    assert f'deepinfer_component_info{{component="{picked}",slot="sampler"}} 1.0' in text
    assert "xyzzy" not in text


def test_two_engines_count_apart(make_llm: MakeLLM) -> None:
    one, two = make_llm(), make_llm()
    one.generate("a", FOUR)
    assert value(one, "requests_total") == 1
    assert value(two, "requests_total") == 0


def test_a_closed_llm_shows_no_metrics_but_a_registry_stays_readable(make_llm: MakeLLM) -> None:
    llm = make_llm()
    llm.generate("a", FOUR)
    registry = llm.metrics
    llm.close()
    with pytest.raises(EngineError, match="closed"):
        _ = llm.metrics
    with pytest.raises(EngineError, match="closed"):
        llm.metrics_text()
    assert registry.get_sample_value("deepinfer_requests_total") == 1


def test_a_registry_that_is_kept_does_not_keep_the_model(make_llm: MakeLLM) -> None:
    llm = make_llm()
    registry, runner = llm.metrics, weakref.ref(llm.engine.runner)
    llm.close()
    gc.collect()
    assert runner() is None
    assert registry.get_sample_value("deepinfer_requests_total") == 0


def test_metrics_can_be_read_from_another_thread_while_text_is_made(make_llm: MakeLLM) -> None:
    llm = make_llm()
    registry, seen, is_done = llm.metrics, list[dict[str, float]](), threading.Event()

    def read() -> None:
        while not is_done.is_set():
            samples = [one for family in registry.collect() for one in family.samples]
            seen.append({one.name: one.value for one in samples})
            is_done.wait(0.002)

    reader = threading.Thread(target=read)
    reader.start()
    llm.generate(["a", "b", "c", "d", "e"], FOUR)
    is_done.set()
    reader.join()
    # Within one reading the figures are of one moment, so they always add up.
    for values in seen:
        first = values["deepinfer_time_to_first_token_seconds_count"]
        later = values["deepinfer_inter_token_latency_seconds_count"]
        assert first + later == values["deepinfer_generation_tokens_total"]


def test_an_interval_gives_lines_in_the_log(
    make_llm: MakeLLM, caplog: pytest.LogCaptureFixture
) -> None:
    def lines(interval_s: float) -> list[str]:
        caplog.clear()
        llm = make_llm(telemetry={"statistics_interval_s": interval_s, "level": "info"})
        with caplog.at_level(logging.INFO, logger="deepinfer"):
            llm.generate("a", FOUR)
        said = [record.getMessage() for record in caplog.records]
        return [line for line in said if "statistics.gathered" in line]

    assert lines(0.0) == []
    assert len(lines(1e-6)) >= 4


def test_a_completion_has_its_timeline_and_its_json_has_not(make_llm: MakeLLM) -> None:
    [done] = make_llm().generate("a", FOUR)
    times = done.timeline
    assert times is not None
    assert times.queue_s is not None
    assert times.decode_s is not None
    assert 0 <= times.queue_s <= times.total_s
    assert "timeline" not in done.to_json()


def test_a_refused_request_has_no_timeline_and_is_not_counted(make_llm: MakeLLM) -> None:
    llm = make_llm()
    [refused] = llm.generate(prompt_token_ids=[[]])
    assert refused.error is not None
    assert refused.timeline is None
    assert value(llm, "requests_total") == 0


def test_the_log_of_a_request_has_its_stations(
    make_llm: MakeLLM, caplog: pytest.LogCaptureFixture
) -> None:
    llm = make_llm()
    with caplog.at_level(logging.INFO, logger="deepinfer"):
        llm.generate("a", FOUR)
    [line] = [
        record.getMessage()
        for record in caplog.records
        if "request.finished" in record.getMessage()
    ]
    for name in ("queue_s", "prefill_s", "decode_s", "preemptions"):
        assert name in line
