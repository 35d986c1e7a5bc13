"""Does a scraper see the board, in the form of the Prometheus text format?"""

import os
import subprocess
import sys

import pytest
from deepinfer_core.telemetry.board import Board
from deepinfer_core.telemetry.metric_list import METRICS
from deepinfer_core.telemetry.registry import exposition, family_texts, new_registry
from prometheus_client import REGISTRY, Counter
from prometheus_client.openmetrics.exposition import generate_latest as open_metrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families


@pytest.fixture
def board() -> Board:
    return Board(
        {"build_info": (("1.2", "m"),), "component_info": (("gemm", "a"), ("sampler", "b"))},
        labelled={
            one.name: (tuple("ab" if label == "class" else label for label in one.labels),)
            for one in METRICS
            if {"class", "part"} & set(one.labels)
        },
    )


def test_every_metric_is_there_with_its_text_and_kind(board: Board) -> None:
    families = list(text_string_to_metric_families(exposition(new_registry(board))))
    shown = [(family.name, family.documentation, family.type) for family in families]
    assert shown == [(one.full_name.removesuffix("_total"), one.help, one.kind) for one in METRICS]


def test_the_parts_of_a_text_are_the_text_of_each_metric(board: Board) -> None:
    board.distribution("queue_seconds").observe(0.5)
    board.number("requests_running").value = 4
    parts = list(family_texts(board.read()))
    assert len(parts) == len(METRICS)
    assert "".join(parts) == exposition(new_registry(board))


def test_counters_and_gauges_show_their_value(board: Board) -> None:
    registry = new_registry(board)
    board.number("requests_finished_total", "abort").value = 3
    board.number("requests_running").value = 4
    value = registry.get_sample_value
    assert value("deepinfer_requests_finished_total", {"reason": "abort"}) == 3
    assert value("deepinfer_requests_finished_total", {"reason": "stop"}) == 0
    assert value("deepinfer_requests_running") == 4
    assert value("deepinfer_build_info", {"version": "1.2", "model": "m"}) == 1
    assert value("deepinfer_component_info", {"slot": "sampler", "component": "b"}) == 1


def test_buckets_of_a_histogram_add_up(board: Board) -> None:
    registry = new_registry(board)
    spread = board.distribution("step_seconds", "mixed")
    for seconds in (0.0001, 0.00015, 0.0002, 1000.0):
        spread.observe(seconds)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(
            f"deepinfer_step_seconds_{name}", {"kind": "mixed", **labels}
        )

    below = [value("bucket", le=bound) for bound in ("0.0001", "0.0002", "0.0005", "50.0", "+Inf")]
    assert below == [1, 3, 3, 3, 4]
    assert value("count") == 4
    assert value("sum") == pytest.approx(1000.00045)
    assert registry.get_sample_value("deepinfer_step_seconds_count", {"kind": "decode"}) == 0


def test_the_stricter_format_can_be_made_of_it_too(board: Board) -> None:
    board.distribution("queue_seconds").observe(0.5)
    text = open_metrics(new_registry(board)).decode()  # type: ignore[no-untyped-call]
    assert len(list(parse_open(text))) == len(METRICS)  # type: ignore[no-untyped-call]


def test_two_boards_show_nothing_of_each_other(board: Board) -> None:
    other = Board({})
    one, two = new_registry(board), new_registry(other)
    board.number("requests_total").value = 5
    assert one.get_sample_value("deepinfer_requests_total") == 5
    assert two.get_sample_value("deepinfer_requests_total") == 0
    assert two.get_sample_value("deepinfer_build_info", {"version": "1.2", "model": "m"}) is None


def test_nothing_is_put_into_the_registry_of_the_process(board: Board) -> None:
    new_registry(board)
    assert not [name for name in REGISTRY._names_to_collectors if name.startswith("deepinfer")]


def test_an_application_may_add_metrics_but_not_under_our_names(board: Board) -> None:
    registry = new_registry(board)
    Counter("acme_visits_total", "Visits.", registry=registry).inc(2)
    assert "acme_visits_total 2.0" in exposition(registry)
    with pytest.raises(ValueError, match="Duplicated"):
        Counter("deepinfer_requests_total", "Requests.", registry=registry)


SHARED = """
from deepinfer_core.telemetry.board import Board
from deepinfer_core.telemetry.registry import new_registry
one, two = Board({}), Board({})
registries = [new_registry(board) for board in (one, two)]
one.number("requests_total").value = 5
print([registry.get_sample_value("deepinfer_requests_total") for registry in registries])
"""


def test_engines_share_nothing_in_the_librarys_multi_process_mode(tmp_path: object) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHARED], capture_output=True, text=True, check=True,
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout == "[5, 0]\n"


def test_measuring_does_not_import_the_library() -> None:
    code = (
        "import sys\n"
        "from deepinfer_core.engine.instruments import Instruments, Readings\n"
        "held = Readings(0, 0, 0, 0, 1, 0, 0, 1)\n"
        "Instruments(lambda: held, version='1', model='m').arrived()\n"
        "print('prometheus_client' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
