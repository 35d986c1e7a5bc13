"""Do the operators of a step move and compute what a count by hand says?

All numbers here were worked out on paper from the small configuration: hidden width 128, latent 64,
four heads of 64, two output groups of rank 32, eight experts of width 64, four streams, eight index
heads of 32.
"""

import pytest
from deepinfer_core.bench.layers.operators import layer_operators, outer_operators
from deepinfer_core.bench.layers.work import Load, Operator, Storage, distinct_experts
from deepinfer_core.testing.tiny import tiny_test_config

CONFIG = tiny_test_config()
STORAGE = Storage(
    dense=2, expert=0.5, plain=2, activation=2, window_row=66, entry_row=36, index_row=17
)
LOAD = Load(sequences=3, rows=2, start=9, drawn=1, experts=5)
"""Six rows at positions 9 and 10."""


def operators(layer: int, load: Load = LOAD) -> dict[str, tuple[float, float]]:
    found = layer_operators(CONFIG.text_config, CONFIG.layers[layer], load, STORAGE)
    return {one.name: (one.moved_bytes, one.flops) for one in found}


def test_a_layer_that_borrows_its_keys() -> None:
    assert operators(3) == {
        "attention.streams_in": (24 * 512 * 4 + 6 * 640 * 2, 2 * 6 * 24 * 512),
        "attention.down": (35_840, 196_608),
        "attention.up": (36_608, 196_608),
        "attention.keys": (8_862, 95_232),
        "attention.group_out": (20_224, 98_304),
        "attention.out": (18_688, 98_304),
        "attention.streams_out": (13_824, 0),
        "experts.streams_in": (56_832, 147_456),
        "experts.gate": (3_680, 12_288),
        "experts.gate_up": (77_568, 589_824),
        "experts.down": (40_704, 294_912),
        "experts.streams_out": (13_824, 0),
    }


def test_a_layer_that_makes_and_selects_entries_of_pairs() -> None:
    own, borrowing = operators(2), operators(3)
    assert own["attention.down"] == (72_288, 405_504)
    assert own["attention.up"] == (77_696, 417_792)
    assert own["attention.index"] == (3_327, 15_360)
    changed = {"attention.down", "attention.up", "attention.index"}
    assert {name for name in own if own[name] != borrowing.get(name)} == changed


def test_a_layer_with_a_window_only_reads_no_entries() -> None:
    # 11 rings rows of 66 bytes a sequence; 10 and 11 keys are seen.
    assert operators(0)["attention.keys"] == (3 * 11 * 66 + 6144, 4 * 3 * 21 * 256)


def test_an_engram_is_projected_and_added_to_all_streams() -> None:
    # Six columns of 32 channels, to five times 128.
    found = operators(1)
    weights = 192 * 640
    assert found["engram.project"] == (weights * 2 + 6 * (192 + 640) * 2, 2 * 6 * weights)
    assert found["engram.gate"] == (2 * 6 * 512 * 2 + 6 * 640 * 2, 0)


@pytest.mark.parametrize(("position", "seen"), [(62, 63), (63, 64), (64, 64), (500, 64)])
def test_a_selector_behind_the_pool_scores_no_more_than_the_pool_holds(
    position: int, seen: int
) -> None:
    load = Load(sequences=1, rows=1, start=position, drawn=1, experts=2)
    # Eight blocks of eight entries.
    assert operators(8, load)["attention.index"] == (seen * 17 + 256 * 2, 2 * seen * 256)
    every = operators(6, load)["attention.index"]
    assert every == ((position + 1) * 17 + 256 * 2, 2 * (position + 1) * 256)


@pytest.mark.parametrize(("position", "window"), [(14, 15), (15, 16), (16, 16)])
def test_a_window_reads_no_more_than_it_holds(position: int, window: int) -> None:
    load = Load(sequences=1, rows=1, start=position, drawn=1, experts=2)
    moved, flops = operators(0, load)["attention.keys"]
    assert (moved, flops) == (window * 66 + 2 * 256 * 2, 4 * window * 256)


def test_head_and_sampler_count_drawn_rows_only() -> None:
    found = {one.name: one for one in outer_operators(CONFIG.text_config, LOAD, STORAGE)}
    logits, values = 3 * 4096 * 4, 4096 * 128
    assert found["embedding"] == Operator(name="embedding", moved_bytes=6 * 512 * 2)
    assert found["head"] == Operator(
        name="head", moved_bytes=values * 2 + 3 * 512 * 2 + logits, flops=2 * 3 * values
    )
    assert found["sampler"] == Operator(name="sampler", moved_bytes=logits)


def test_a_step_that_draws_nothing_reads_no_head() -> None:
    load = Load(sequences=1, rows=4, start=0, drawn=0, experts=2)
    found = {one.name: one for one in outer_operators(CONFIG.text_config, load, STORAGE)}
    assert (found["head"].moved_bytes, found["sampler"].moved_bytes) == (0, 0)


def test_one_row_meets_its_own_experts_and_many_rows_meet_all() -> None:
    assert distinct_experts(384, 6, 1) == pytest.approx(6)
    # Two rows share 6 * 6 / 384 on average.
    assert distinct_experts(384, 6, 2) == pytest.approx(12 - 36 / 384)
    assert distinct_experts(384, 6, 100_000) == pytest.approx(384)
    assert distinct_experts(384, 6, 0) == 0
