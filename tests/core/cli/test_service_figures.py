"""Has every zero of a service's store a reason, and the right one?"""

from typing import Any

import pytest
from deepinfer_core.cli.service_figures import Figure, figures_of_text, told
from deepinfer_core.engine.prompt_sources import source_labels
from deepinfer_core.engine.stored.parts import Part, part_labels
from deepinfer_core.telemetry.board import Board
from deepinfer_core.telemetry.registry import exposition, new_registry

PARTS = (
    Part("store", "core.tiered"),
    Part("tiers.0", "core.memory"),
    Part("tiers.1", "core.disk"),
)
BUSY: dict[Any, float] = {
    "prompt_tokens_total": 1000,
    "prefix_cache_lookups_total": 10,
    "kv_store_usable": 1,
}
"""A service that has answered."""


def figures(
    values: dict[Any, float], *, parts: tuple[Part, ...] = PARTS[:1], store: str = "core.disk"
) -> dict[str, Figure]:
    """What is told where series have these values: by name, or by name and labels."""
    described = {
        "build_info": (("1", "m"),),
        "component_info": (("kv_store", store), ("sampler", "s")) if store else (("sampler", "s"),),
    }
    labels = {"prompt_source_tokens_total": source_labels(("agent", "chat")), **part_labels(parts)}
    board = Board(described, labelled=labels)
    for series, value in values.items():
        board.number(*(series if isinstance(series, tuple) else (series,))).value = value
    return {one.name: one for one in told(figures_of_text(exposition(new_registry(board))))}


def why(name: str, values: dict[Any, float], **more: Any) -> str:
    return figures(values, **more)[name].why


@pytest.mark.parametrize("store", ["core.disk", ""])
@pytest.mark.parametrize("values", [{}, BUSY, {**BUSY, ("kv_store_kept_blocks", "blocks"): 7}])
def test_every_zero_has_a_reason_and_nothing_else_has(values: dict[Any, float], store: str) -> None:
    for one in figures(values, store=store, parts=PARTS if store else ()).values():
        assert bool(one.why) == (not one.value)


def test_without_requests_that_is_the_reason() -> None:
    found = figures({"kv_store_usable": 1})
    assert {one.why for name, one in found.items() if name.startswith("input")} == {
        "no request has ended"
    }
    assert found["blocks stored"].why == "no request has ended"


def test_a_service_without_a_store_says_so() -> None:
    assert "has no store" in why("blocks that came", BUSY, store="")
    assert "has no store" in why("input tokens: store", BUSY, store="")
    assert why("blocks kept", BUSY, store="").startswith("the service has no store")


def test_without_a_store_no_reason_names_what_only_a_store_has() -> None:
    found = {**BUSY, ("prompt_states_total", "missed"): 3}
    assert "engine.kv_store" not in why("states: local", found, store="")
    assert why("input tokens: host", BUSY, store="").endswith("or none had a full block")


def test_an_open_circuit_says_since_when() -> None:
    down = {**BUSY, "kv_store_usable": 0, "kv_store_unusable_seconds": 34}
    for name in ("prefixes asked for", "blocks stored", "blocks that came"):
        assert why(name, down).startswith("the store cannot be asked since 34 s")


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("too_short", "no request had a full block"),
        ("in_memory", "was in the engine's memory"),
        ("busy", "9 requests found too many fetches"),
    ],
)
def test_what_was_not_asked_for_says_why(reason: str, text: str) -> None:
    values = {**BUSY, ("kv_store_unasked_total", reason): 9}
    assert text in why("prefixes asked for", values)
    assert text in why("blocks that came", values)
    assert text in why("input tokens: store", values)


def test_short_prompts_are_why_nothing_was_in_memory() -> None:
    assert why("input tokens: host", {**BUSY, ("kv_store_unasked_total", "too_short"): 10}) == (
        "no request had a full block"
    )
    assert "no prompt began like one" in why("input tokens: host", BUSY)


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        ("corrupt", "damaged"),
        ("version", "another version"),
        ("timeout", "too slow"),
        ("abandoned", "computing is quicker"),
        ("unavailable", "its log says why"),
        ("lost", "the fetcher, which died"),
        ("full", "fetch_bytes"),
        ("no_room", "kv_cache_bytes"),
        ("failed", "to the device"),
        ("left", "ended before"),
    ],
)
def test_nothing_came_because_of_what_ended_most_fetches(outcome: str, text: str) -> None:
    values = {
        **BUSY,
        ("kv_store_fetches_total", outcome): 5,
        ("kv_store_fetches_total", "miss"): 2,
        ("kv_store_kept_blocks", "blocks"): 7,
    }
    assert text in why("blocks that came", values)
    assert "5 " in why("blocks that came", values)


def test_a_store_with_blocks_has_none_of_those_that_were_asked_for() -> None:
    values = {**BUSY, ("kv_store_fetches_total", "miss"): 3}
    full = {**values, ("kv_store_kept_blocks", "blocks"): 7}
    assert why("blocks that came", full) == ("the store had none of what it was asked for, 3 times")
    assert why("blocks that came", values).startswith("the store holds nothing: ")


def test_blocks_that_came_and_were_not_used_say_so() -> None:
    came = {**BUSY, ("kv_store_fetches_total", "done"): 1, "kv_store_fetched_blocks_total": 4}
    some_failed = {**came, ("kv_store_fetches_total", "timeout"): 9}
    for values in (came, some_failed):
        assert why("input tokens: store", values) == (
            "all that came was fed again, or was in memory by then"
        )
    early = {**came, "prompt_tokens_total": 0}
    assert why("input tokens: store", early) == "no request has ended"


def test_a_store_that_holds_nothing_is_the_reason_only_where_something_was_missed() -> None:
    slow = {**BUSY, ("kv_store_fetches_total", "timeout"): 3}
    assert "3 fetches were too slow" in why("blocks that came", slow)
    missed = {**slow, ("kv_store_fetches_total", "miss"): 1}
    assert why("blocks that came", missed).startswith("the store holds nothing: ")


def test_an_open_circuit_goes_before_what_ended_fetches() -> None:
    values = {**BUSY, "kv_store_usable": 0, ("kv_store_fetches_total", "timeout"): 3}
    assert why("blocks that came", values).startswith("the store cannot be asked since")


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        ("unavailable", "could not take 4 blocks: its log says why (store.refused)"),
        ("full", "no room for 4 blocks: see its capacity_bytes"),
        ("orphan", "the ones before them are not there"),
        ("timeout", "waited for too long"),
        ("dropped", "nobody had time"),
        ("lost", "the fetcher, which died"),
        ("failed", "from the device"),
        ("known", "all 4 were there"),
        ("exists", "all 4 were there"),
    ],
)
def test_nothing_was_stored_because_of_what_became_of_blocks(outcome: str, text: str) -> None:
    assert text in why("blocks stored", {**BUSY, ("kv_store_written_blocks_total", outcome): 4})


def test_blocks_that_wait_are_not_stored_yet() -> None:
    assert why("blocks stored", {**BUSY, ("kv_store_pending_blocks", "writing"): 6}) == (
        "6 blocks wait"
    )


def test_an_empty_store_says_what_went_or_why_nothing_came() -> None:
    gone = {**BUSY, ("kv_store_removed_blocks_total", "expired"): 5}
    assert why("blocks kept", gone) == "all went: 5 expired"
    stored = {**BUSY, ("kv_store_written_blocks_total", "stored"): 5}
    assert "has not told since" in why("blocks kept", stored)
    assert why("blocks kept", BUSY) == "nothing was stored: no request has computed a full block"


def test_a_tier_that_gave_nothing_says_why() -> None:
    fast, slow = PARTS[1:]
    values = {
        **BUSY,
        ("kv_store_part_usable", *fast): 1,
        ("kv_store_part_blocks_total", *fast, "miss"): 8,
    }
    found = figures(values, parts=PARTS)
    assert found["blocks from tiers.0"].why == "it had none of 8 blocks that it was asked for"
    assert "has a problem, or is not open" in found["blocks from tiers.1"].why
    found = figures({**values, ("kv_store_part_blocks_total", *slow, "hit"): 8}, parts=PARTS)
    assert found["blocks from tiers.1"] == ("blocks from tiers.1", 8, "")


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        ("miss", "it had none of 8 blocks"),
        ("corrupt", "8 blocks that it was asked for were damaged"),
        ("version", "of another version"),
        ("timeout", "too slow for 8 blocks"),
        ("unavailable", "could not give or take 8 blocks"),
    ],
)
def test_a_tier_that_was_asked_in_vain_does_not_say_that_nobody_asked(
    outcome: str, text: str
) -> None:
    fast = PARTS[1]
    values = {
        **BUSY,
        ("kv_store_part_usable", *fast): 1,
        ("kv_store_part_blocks_total", *fast, outcome): 8,
    }
    assert text in figures(values, parts=PARTS)["blocks from tiers.0"].why
    idle = {**BUSY, ("kv_store_part_usable", *fast): 1}
    assert "was asked for nothing" in figures(idle, parts=PARTS)["blocks from tiers.0"].why


def test_states_that_nobody_had_say_why() -> None:
    found = {**BUSY, ("prompt_states_total", "missed"): 3}
    assert why("states: local", BUSY) == "no prefix was found"
    assert "no state of a prefix was in memory here" in why("states: local", found)
    assert why("states: peer", found) == "no part of the store is core.peers"
    here = {**BUSY, ("prompt_states_total", "local"): 3}
    assert why("states: missed", here) == "every prefix had a state at its end"


def test_only_core_peers_can_give_blocks_of_other_machines() -> None:
    assert why("input tokens: peer", BUSY) == "no part of the store is core.peers"
    pool = (Part("store", "core.peers"),)
    assert why("input tokens: peer", BUSY, parts=pool, store="core.peers") == (
        "no block came from the memory of another machine"
    )
