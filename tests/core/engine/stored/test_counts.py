"""Does every figure about a store reach its metric?"""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

from deepinfer_core.engine.stored import exchange
from deepinfer_core.engine.stored.counts import StoreCounts
from deepinfer_core.engine.stored.parts import Part, part_labels
from deepinfer_core.interfaces.store_report import AGE_BOUNDS_S, EvictedAges, StoreReport
from deepinfer_core.stores.traffic import TrafficCounts
from deepinfer_core.telemetry.board import Board

AGES = EvictedAges(counts=(1, 2, *[0] * (len(AGE_BOUNDS_S) - 1)), total_s=300.0)
FULL = StoreReport(
    records=5, used_bytes=6, capacity_bytes=7, high_bytes=20,
    removed={"room": 3, "discarded": 1}, ages={"room": AGES},
)  # fmt: skip
CHILD = StoreReport(records=21, used_bytes=22, capacity_bytes=23, high_bytes=24)
MADE_OF_OTHERS = replace(
    FULL,
    work={"promoted": 30, "repaired": 31, "waiting_for_repair": 32},
    outcomes={"hit": 33},
    parts={
        "tiers.0": replace(CHILD, outcomes={"hit": 25, "miss": 26}),
        "tiers.1": replace(
            CHILD, work={"bad_fragments_1": 27}, parts={"children.1": CHILD}, problem="hung"
        ),
    },
)
PARTS = (
    Part("store", "core.tiered"),
    Part("tiers.0", "core.memory"),
    Part("tiers.1", "core.erasure"),
    Part("tiers.1.children.0", "core.disk"),
    Part("tiers.1.children.1", "core.disk"),
)


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
            fetched_batches=17,
            match_timeouts=18,
            stores={"blocks": MADE_OF_OTHERS, "state": FULL},
        ),
    )


def test_each_figure_has_its_series() -> None:
    shown = dict(filled().levels(PARTS, 0.0))
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
    assert shown["kv_store_high_bytes", "blocks"] == 20
    assert shown["kv_store_fetched_batches_total",] == 17
    assert shown["kv_store_match_timeouts_total",] == 18
    assert shown["kv_store_removed_blocks_total", "room"] == 6
    assert shown["kv_store_removed_blocks_total", "discarded"] == 2


def test_all_series_are_the_boards_and_nothing_of_the_store_is_left_out() -> None:
    board, shown = Board({}, labelled=part_labels(PARTS)), dict(filled().levels(PARTS, 0.0))
    for series in shown:
        board.number(*series)
    known = {
        (one.metric.name, *one.labels)
        for one in board.read()
        if one.metric.name.startswith("kv_store_") and not one.counts
    }
    assert known == set(shown)


def test_each_part_has_what_it_told() -> None:
    shown = dict(filled().levels(PARTS, 0.0))
    whole, fast, _, lost, child = PARTS
    assert shown["kv_store_part_kept_blocks", *whole] == 5
    assert shown["kv_store_part_blocks_total", *whole, "hit"] == 33
    assert shown["kv_store_part_blocks_total", *fast, "hit"] == 25
    assert shown["kv_store_part_blocks_total", *fast, "miss"] == 26
    assert shown["kv_store_part_kept_blocks", *child] == 21
    assert shown["kv_store_part_kept_bytes", *child] == 22
    assert shown["kv_store_part_capacity_bytes", *child] == 23
    assert shown["kv_store_part_high_bytes", *child] == 24
    usable = [shown["kv_store_part_usable", *part] for part in PARTS]
    assert usable == [1, 1, 0, 0, 1]
    assert shown["kv_store_part_kept_blocks", *lost] == 0


def test_wrong_fragments_are_those_of_their_child() -> None:
    shown = dict(filled().levels(PARTS, 0.0))
    wrong = [shown["kv_store_part_bad_fragments_total", *part] for part in PARTS]
    assert wrong == [0, 0, 0, 0, 27]
    alone = (Part("store", "core.erasure"), Part("children.1", "core.disk"))
    told = TrafficCounts(stores={"blocks": StoreReport(work={"bad_fragments_1": 4})})
    shown = dict(StoreCounts(traffic=told).levels(alone, 0.0))
    assert [shown["kv_store_part_bad_fragments_total", *part] for part in alone] == [0, 4]


def test_work_beside_calls_is_that_of_the_whole_store() -> None:
    shown = dict(filled().levels(PARTS, 0.0))
    assert shown["kv_store_work_total", "promoted"] == 30
    assert shown["kv_store_work_total", "repaired"] == 31
    assert shown["kv_store_work_total", "hedged"] == 0
    assert shown["kv_store_waiting_for_repair",] == 32


def test_ages_of_all_stores_join() -> None:
    board = Board({}, labelled=part_labels(PARTS))
    filled().show(board, PARTS, 0.0)
    room = board.distribution("kv_store_evicted_age_seconds", "room")
    assert (room.counts[:3], room.total) == ([2, 4, 0], 600.0)
    assert board.distribution("kv_store_evicted_age_seconds", "quota").count == 0


def test_it_is_told_for_how_long_a_store_cannot_be_asked(make_stored) -> None:
    stored = make_stored()
    for now, problem in ((1.0, ""), (2.0, "circuit"), (3.0, "another"), (4.5, "another")):
        stored.traffic.counts = lambda problem=problem: TrafficCounts(problem=problem)
        stored.now[0] = now
        stored.step()
    shown = dict(stored.exchange.counts.levels((), 5.0))
    assert shown["kv_store_unusable_seconds",] == 3.0
    stored.traffic.counts = TrafficCounts
    stored.now[0] = 6.0
    stored.step()
    assert dict(stored.exchange.counts.levels((), 7.0))["kv_store_unusable_seconds",] == 0.0


def test_a_store_that_cannot_be_asked_is_not_usable() -> None:
    counts = StoreCounts(traffic=TrafficCounts(problem="its fetcher died five times"))
    assert dict(counts.levels((), 0.0))["kv_store_usable",] == 0


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


def test_an_engine_that_stands_still_shows_what_the_store_tells_now(make_stored, text) -> None:
    stored = make_stored()
    stored.ask(text[:9])
    reports = {"blocks": StoreReport(records=7)}
    stored.traffic.counts = lambda: TrafficCounts(stores=reports, problem="circuit")
    stored.now[0] = 5.0
    series = stored.engine.instruments.board.read()
    shown = {(one.metric.name, *one.labels): one.value for one in series}
    assert shown["kv_store_kept_blocks", "blocks"] == 7
    assert shown["kv_store_usable",] == 0
    assert stored.exchange.counts.unusable_since_s == 5.0
