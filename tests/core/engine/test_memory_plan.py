"""The memory plan: the published figures, every way to choose blocks, what does not fit."""

from dataclasses import replace
from importlib.resources import as_file, files
from typing import Any

import pytest
from deepinfer_core.config import Settings
from deepinfer_core.engine.memory_plan import CACHE_SHARE, SNAPSHOT_SHARE, plan_memory
from deepinfer_core.engine.page_sizes import PageSizes, page_sizes
from deepinfer_core.errors import ConfigError
from deepinfer_core.interfaces.recording import MOST_RECORDED_BYTES
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.testing.tiny import tiny_test_config

CONFIG = tiny_test_config()
SIZES = PageSizes(weights_bytes=1000, block_bytes=100, state_bytes=10)
"""Round figures in place of the model's own."""


def settings(**engine: Any) -> Settings:
    limits = {"max_model_len": 512, "max_num_seqs": 4, "max_num_batched_tokens": 64}
    limits |= {"snapshot_slots": 0, **engine}
    return Settings.model_validate({"engine": limits})


def blocks(memory_bytes: int = 0, **engine: Any) -> int:
    return plan_memory(CONFIG, settings(**engine), memory_bytes, sizes=SIZES).num_blocks


def test_pages_of_the_full_size_model_have_the_published_sizes() -> None:
    sizes = page_sizes(full_size_config(), Settings())
    assert sizes.block_bytes == 114_048
    assert sizes.state_bytes == 3_128_928
    assert sizes.weights_bytes == 510_286_023_000


def test_tables_that_stay_on_the_host_take_no_memory_of_a_device_with_its_own() -> None:
    sizes = page_sizes(full_size_config(), Settings(device="acme"))
    # Two tables, 264 bytes a row: 256 values and 8 scales.
    assert sizes.weights_bytes == 510_286_023_000 - (384_006_168 + 384_016_682) * 264


@pytest.mark.parametrize(
    ("device", "graphs", "counted_bytes"),
    [("cpu", True, MOST_RECORDED_BYTES), ("cpu", False, 0), ("acme", True, 0)],
)
def test_recorded_steps_count_where_the_model_may_record_them(
    device: str, graphs: bool, counted_bytes: int
) -> None:
    chosen = Settings.model_validate({"device": device, "engine": {"graphs": graphs}})
    assert page_sizes(CONFIG, chosen).recordings_bytes == counted_bytes


def drafting(drafter: str = "core.ngram", **speculation: Any) -> Settings:
    limits = {"max_model_len": 512, "max_num_seqs": 4, "max_num_batched_tokens": 64}
    components = {"drafter": {"use": drafter}}
    return Settings.model_validate(
        {"engine": limits, "components": components, "speculation": speculation}
    )


def test_recorded_steps_with_drafts_count_as_often_as_they_have_rows_a_sequence() -> None:
    assert page_sizes(CONFIG, drafting(max_drafts=3)).recordings_bytes == 4 * MOST_RECORDED_BYTES


def test_laws_of_drafts_count_where_drafts_are_accepted_by_them() -> None:
    asked = {"rule": "ratio", "max_drafts": 3}
    counted = page_sizes(CONFIG, drafting(**asked)).laws_bytes
    assert counted == 4 * (4 + 1) * 3 * CONFIG.text_config.vocab_size
    assert page_sizes(CONFIG, drafting(**{**asked, "rule": "match"})).laws_bytes == 0
    assert page_sizes(CONFIG, drafting("none", **asked)).laws_bytes == 0


def test_tokens_count_where_the_drafter_reads_them() -> None:
    """8 bytes for each of 513 positions of four sequences and of padding."""
    chosen, counted_bytes = drafting(), 8 * (4 + 1) * (512 + 1)
    assert page_sizes(CONFIG, chosen, reads_tokens=True).tokens_bytes == counted_bytes
    assert page_sizes(CONFIG, chosen).tokens_bytes == 0
    plans = [plan_memory(CONFIG, chosen, 0, reads_tokens=reads) for reads in (False, True)]
    assert plans[1].total_bytes == plans[0].total_bytes + counted_bytes


@pytest.mark.parametrize(("drafts", "rows"), [(0, 6), (5, 6), (6, 7), (15, 16)])
def test_rings_hold_as_many_rows_as_a_step_may_take_back(drafts: int, rows: int) -> None:
    plan = plan_memory(CONFIG, drafting(max_drafts=drafts), 0, sizes=SIZES)
    assert plan.max_backtracking == rows


def test_a_step_needs_room_for_the_drafts_of_each_sequence() -> None:
    assert plan_memory(CONFIG, drafting(max_drafts=15), 0, sizes=SIZES)
    with pytest.raises(ConfigError, match=r"the 68 rows of engine\.max_num_seqs 4 sequences"):
        plan_memory(CONFIG, drafting(max_drafts=16), 0, sizes=SIZES)


def full_size_config() -> ModelConfig:
    folder = files("deepinfer_core.model") / "data"
    with as_file(folder / "deepseek_v41_flash.json") as path:
        return ModelConfig.from_file(path)


def test_all_running_sequences_can_fill_their_blocks() -> None:
    # 4 sequences of 512 tokens are 16 blocks of 128; one more is the dummy.
    assert blocks() == 17
    assert blocks(max_model_len=513) == 4 * 5 + 1


def test_blocks_take_their_share_of_what_weights_and_states_leave() -> None:
    # 1000 bytes of weights and 5 slots of 10 bytes leave 1200 of 2250: 12 blocks of 100 fit half.
    assert CACHE_SHARE == 0.5
    assert blocks(memory_bytes=2250) == 6
    assert blocks(memory_bytes=10_000) == 17


def test_a_given_number_of_blocks_wins_over_given_bytes() -> None:
    assert blocks(num_blocks=9, kv_cache_bytes=1) == 9
    assert blocks(kv_cache_bytes=999) == 9


@pytest.mark.parametrize(("sequences", "ratio", "slots"), [(4, 1.2, 5), (10, 1.2, 13), (4, 1, 5)])
def test_there_is_a_slot_for_each_running_sequence_and_some_more(
    sequences: int, ratio: float, slots: int
) -> None:
    chosen = settings(max_num_seqs=sequences, state_slots_ratio=ratio)
    assert plan_memory(CONFIG, chosen, 0, sizes=SIZES).num_slots == slots


def test_the_longest_sequence_is_the_checkpoints_context_unless_set() -> None:
    unset = plan_memory(CONFIG, settings(max_model_len=None), 0, sizes=SIZES)
    assert unset.max_model_tokens == 2048
    assert plan_memory(CONFIG, settings(), 0, sizes=SIZES).max_model_tokens == 512


@pytest.mark.parametrize("length", [1, 2049])
def test_a_length_beyond_the_checkpoint_is_refused(length: int) -> None:
    with pytest.raises(ConfigError, match=rf"max_model_len is {length}, .* 2048"):
        blocks(max_model_len=length)


def test_one_request_of_the_longest_length_must_fit() -> None:
    assert blocks(num_blocks=5) == 5
    with pytest.raises(ConfigError, match=r"512 tokens needs 4 blocks .* 3 fit") as caught:
        blocks(num_blocks=4)
    assert "lower engine.max_model_len to 384" in caught.value.hint


def test_a_cache_without_a_block_is_not_helped_by_a_shorter_length() -> None:
    with pytest.raises(ConfigError, match="0 fit beside the dummy") as caught:
        blocks(num_blocks=1)
    assert caught.value.hint == "give more with engine.num_blocks or engine.kv_cache_bytes"


def test_weights_that_exceed_the_device_are_named_first() -> None:
    with pytest.raises(ConfigError, match=r"weights and state slots need 1050 bytes, .* 1049"):
        blocks(memory_bytes=1049)


RECORDING = replace(SIZES, recordings_bytes=500)


def test_recorded_steps_leave_less_for_blocks() -> None:
    # 1000 bytes of weights, 500 of recorded steps and 5 slots of 10 bytes leave 1200 of 2750.
    plan = plan_memory(CONFIG, settings(), 2750, sizes=RECORDING)
    assert plan.num_blocks == 6
    assert plan.total_bytes == 1000 + 500 + 600 + 50


@pytest.mark.parametrize(
    ("memory_bytes", "hint"),
    [
        (1549, "lower engine.max_num_seqs"),
        (1501, "lower engine.max_num_seqs"),
        (1500, "set engine.graphs = false, which records no steps"),
        (1001, "set engine.graphs = false, which records no steps"),
        (1000, "this checkpoint needs a device with more memory"),
    ],
)
def test_what_helps_depends_on_what_fits(memory_bytes: int, hint: str) -> None:
    with pytest.raises(ConfigError, match="weights, recorded steps and state slots need") as caught:
        plan_memory(CONFIG, settings(), memory_bytes, sizes=RECORDING)
    assert caught.value.hint == hint


def test_more_blocks_than_the_device_holds_are_refused() -> None:
    with pytest.raises(ConfigError, match="need 2050 bytes, the device has 2000"):
        blocks(memory_bytes=2000, num_blocks=10)


def test_a_step_must_have_a_row_for_each_running_sequence() -> None:
    with pytest.raises(ConfigError, match="max_num_batched_tokens is 3, below"):
        blocks(max_num_batched_tokens=3)


def test_the_data_form_holds_every_figure() -> None:
    plan = plan_memory(CONFIG, settings(), 0, sizes=SIZES)
    assert plan.to_json() == {
        "weights_bytes": 1000,
        "block_bytes": 100,
        "state_bytes": 10,
        "recordings_bytes": 0,
        "laws_bytes": 0,
        "tokens_bytes": 0,
        "max_model_tokens": 512,
        "max_backtracking": 6,
        "num_blocks": 17,
        "num_slots": 5,
        "snapshot_slots": 0,
        "total_bytes": 1000 + 1700 + 50,
    }


def snapshots(memory_bytes: int = 0, **engine: Any) -> int:
    plan = plan_memory(
        CONFIG, settings(**{"snapshot_slots": None, **engine}), memory_bytes, sizes=SIZES
    )
    running = plan_memory(CONFIG, settings(), 0, sizes=SIZES).num_slots
    assert plan.num_slots == running + plan.snapshot_slots
    return plan.snapshot_slots


def test_there_are_four_snapshots_for_each_running_sequence() -> None:
    assert snapshots() == 16


def test_snapshots_take_a_tenth_of_what_weights_running_states_and_given_blocks_leave() -> None:
    # 1000 bytes of weights and 5 slots of 10 bytes leave 1200 of 2250: 12 slots of 10 are a tenth.
    assert SNAPSHOT_SHARE == 0.1
    assert snapshots(memory_bytes=2250) == 12
    assert snapshots(memory_bytes=2250, num_blocks=7) == 5
    assert snapshots(memory_bytes=2250, kv_cache_bytes=1200) == 0


def test_a_given_number_of_snapshots_is_taken_or_refused() -> None:
    assert snapshots(memory_bytes=10_000, snapshot_slots=30) == 30
    with pytest.raises(ConfigError, match="the device has 2250"):
        snapshots(memory_bytes=2250, snapshot_slots=80, num_blocks=5)


@pytest.mark.parametrize(
    ("memory_bytes", "engine", "hint"),
    [
        (1000, {}, "this checkpoint needs a device with more memory"),
        (1049, {}, "lower engine.max_num_seqs"),
        (1059, {"snapshot_slots": 1}, "lower engine.snapshot_slots"),
    ],
)
def test_what_leaves_no_room_for_blocks_is_refused_with_what_to_lower(
    memory_bytes: int, engine: dict[str, int], hint: str
) -> None:
    # Weights take 1000 bytes, five slots 50, a snapshot 10.
    with pytest.raises(ConfigError, match=f"the device has {memory_bytes}") as refused:
        blocks(memory_bytes, **engine)
    assert refused.value.hint == hint
