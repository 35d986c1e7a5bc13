"""Does every figure about a store reach its metric?"""

from collections import Counter
from types import SimpleNamespace

from deepinfer_core.engine.stored import exchange
from deepinfer_core.engine.stored.counts import StoreCounts
from deepinfer_core.interfaces.kv_store import StoreReport
from deepinfer_core.stores.traffic import TrafficCounts
from deepinfer_core.telemetry.board import Board

FULL = StoreReport(records=5, used_bytes=6, capacity_bytes=7, removed={"room": 3, "discarded": 1})


def filled() -> StoreCounts:
    return StoreCounts(
        fetches=Counter(done=2, abandoned=1),
        unasked=Counter(in_memory=4),
        states=3,
        written=Counter(dropped=6),
        backlog=8,
        traffic=TrafficCounts(
            fetched_blocks=10,
            fetched_bytes=11,
            written={"stored": 12, "exists": 13},
            probes=14,
            match_s=0.5,
            fetch_s=0.25,
            writing=15,
            restarts=16,
            stores={"blocks": FULL, "state": FULL},
        ),
    )


def test_each_figure_has_its_series() -> None:
    shown = dict(filled().levels())
    assert shown["kv_store_usable",] == 1
    assert shown["kv_store_fetches_total", "done"] == 2
    assert shown["kv_store_fetches_total", "abandoned"] == 1
    assert shown["kv_store_unasked_total", "in_memory"] == 4
    assert shown["kv_store_fetched_states_total",] == 3
    assert shown["kv_store_written_blocks_total", "dropped"] == 6
    assert shown["kv_store_written_blocks_total", "stored"] == 12
    assert shown["kv_store_written_blocks_total", "exists"] == 13
    assert shown["kv_store_pending_blocks", "waiting"] == 8
    assert shown["kv_store_pending_blocks", "writing"] == 15
    assert shown["kv_store_fetched_blocks_total",] == 10
    assert shown["kv_store_fetched_bytes_total",] == 11
    assert shown["kv_store_probes_total",] == 14
    assert shown["kv_store_match_seconds_total",] == 0.5
    assert shown["kv_store_fetch_seconds_total",] == 0.25
    assert shown["kv_store_restarts_total",] == 16
    assert shown["kv_store_kept_blocks", "state"] == 5
    assert shown["kv_store_kept_bytes", "blocks"] == 6
    assert shown["kv_store_capacity_bytes", "blocks"] == 7
    assert shown["kv_store_removed_blocks_total", "room"] == 6
    assert shown["kv_store_removed_blocks_total", "discarded"] == 2


def test_all_series_are_the_boards_and_nothing_of_the_store_is_left_out() -> None:
    board, shown = Board({}), dict(filled().levels())
    for series in shown:
        board.number(*series)
    names = {one.metric.name for one in board.read() if one.metric.name.startswith("kv_store_")}
    assert names == {series[0] for series in shown}


def test_a_store_that_cannot_be_asked_is_not_usable() -> None:
    counts = StoreCounts(traffic=TrafficCounts(problem="its fetcher died five times"))
    assert dict(counts.levels())["kv_store_usable",] == 0


def test_a_stores_problem_is_logged_when_it_changes_and_when_it_is_gone(
    make_stored, monkeypatch
) -> None:
    lines = []
    log = SimpleNamespace(
        warning=lambda event, **more: lines.append((event, more)),
        info=lambda event, **more: lines.append((event, more)),
    )
    monkeypatch.setattr(exchange, "get_logger", lambda name: log)
    stored = make_stored()
    for now, problem in enumerate(("", "tier 1: full", "tier 1: full", "tier 2: gone", "", ""), 1):
        reports = {"blocks": StoreReport(problem=problem), "state": StoreReport()}
        stored.traffic.counts = lambda reports=reports: TrafficCounts(stores=reports)
        stored.now[0] = now
        stored.step()
    assert lines == [
        ("kv_store.problem", {"of": "blocks", "reason": "tier 1: full"}),
        ("kv_store.problem", {"of": "blocks", "reason": "tier 2: gone"}),
        ("kv_store.problem_gone", {"of": "blocks"}),
    ]
