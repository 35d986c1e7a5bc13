"""Does every region of a block and of a state slot lie where it should, and take what it should?"""

from itertools import pairwise
from pathlib import Path

import pytest
from deepinfer_core.cache.layout import CacheLayout, Region, cache_layout
from deepinfer_core.cache.needs import CacheFormats, CacheNeeds
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.caches import model_cache_layout
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.numeric import row_bytes
from deepinfer_core.reference.cache_codec import ReferenceCacheCodec
from deepinfer_core.testing.tiny import tiny_test_config

PRODUCTION = Numerics()
SEMANTIC = Numerics(compute="float64", activation_quantisation=False, cache_quantisation=False)


@pytest.fixture(scope="module")
def full() -> CacheLayout:
    return layout_of(published_config())


@pytest.fixture(scope="module")
def tiny() -> CacheLayout:
    return layout_of(tiny_test_config())


def published_config() -> ModelConfig:
    import deepinfer_core.model as room

    return ModelConfig.from_file(next(Path(room.__path__[0], "data").glob("*.json")))


def layout_of(config: ModelConfig, numerics: Numerics = PRODUCTION) -> CacheLayout:
    return model_cache_layout(config, numerics, ReferenceCacheCodec(), max_backtracking=6)


def test_a_block_of_the_full_model_takes_113920_bytes_and_890_a_token(full: CacheLayout) -> None:
    assert full.block.used_bytes == 113_920
    assert full.block.used_bytes // full.block.block_tokens == 890


def test_the_full_model_strides_blocks_by_whole_entries_and_lines(full: CacheLayout) -> None:
    assert full.block.stride_bytes == 114_048


def test_owners_of_pairs_take_22784_bytes_and_the_decoder_s_owner_45568(full: CacheLayout) -> None:
    sizes = {
        layer: full.block.entries[layer].size_bytes + full.block.index_keys[layer].size_bytes
        for layer in full.block.entries
    }
    assert sizes == {2: 22_784, 8: 22_784, 14: 22_784, 20: 45_568}


def test_a_state_of_the_full_model_stores_1415040_of_3128352_bytes(full: CacheLayout) -> None:
    assert full.state.stored_bytes == 1_415_040
    assert full.state.used_bytes == 3_128_352
    assert full.state.stride_bytes == 3_128_928


def test_rings_of_the_full_model_have_134_rows_and_7_raw_ones(full: CacheLayout) -> None:
    assert full.state.ring_tokens == 134
    assert full.state.compressor_tokens == 7
    assert {region.size_bytes for region in full.state.windows} == {70_752}
    assert {region.size_bytes for region in full.state.compressors.values()} == {28_672}


def test_the_tiny_model_has_its_derived_sizes(tiny: CacheLayout) -> None:
    assert tiny.state.windows[0].row_bytes == 66
    assert tiny.block.entries[2].row_bytes == 36
    assert tiny.block.index_keys[2].row_bytes == 17
    assert tiny.state.ring_tokens == 22
    assert tiny.block.used_bytes == 13_568
    assert tiny.state.stored_bytes == 8_712
    assert sum(region.size_bytes for region in tiny.state.windows[6:]) == 6 * 22 * 66
    assert sum(region.size_bytes for region in tiny.state.drafters) == 3 * 22 * 66
    assert sum(region.size_bytes for region in tiny.state.compressors.values()) == 7_168


def test_wide_entries_take_the_form_of_window_keys() -> None:
    wide = layout_of(tiny_test_config(use_fp4_sparse_kv=False))
    assert wide.block.entries[2].number_format == "mxfp8"
    assert wide.block.entries[2].row_bytes == 66


def test_lossless_caches_keep_everything_in_the_compute_dtype() -> None:
    lossless = layout_of(tiny_test_config(), SEMANTIC)
    regions = all_regions(lossless)
    assert {region.number_format for region in regions} == {"float64"}
    assert all(region.offset_bytes % 8 == 0 and region.row_bytes % 8 == 0 for region in regions)


@pytest.mark.parametrize("numerics", [PRODUCTION, SEMANTIC], ids=["production", "semantic"])
def test_regions_of_a_page_do_not_overlap_and_fit(numerics: Numerics) -> None:
    layout = layout_of(tiny_test_config(), numerics)
    block = [*layout.block.entries.values(), *layout.block.index_keys.values()]
    assert_apart(block, layout.block.stride_bytes)
    assert_apart(state_regions(layout), layout.state.stride_bytes)


def test_the_stored_part_of_a_state_is_the_encoder_s_rings_without_gaps(tiny: CacheLayout) -> None:
    encoders = tiny.state.windows[:6]
    assert [region.offset_bytes for region in encoders] == [
        number * encoders[0].size_bytes for number in range(6)
    ]
    assert min(region.offset_bytes for region in tiny.state.windows[6:]) >= tiny.state.stored_bytes


def test_index_keys_keep_their_scales_apart_and_nothing_else_does(tiny: CacheLayout) -> None:
    assert {region.scales_apart for region in tiny.block.index_keys.values()} == {True}
    others = [*state_regions(tiny), *tiny.block.entries.values()]
    assert {region.scales_apart for region in others} == {False}


@pytest.mark.parametrize("max_backtracking", [1, 2, 6, 7])
def test_rings_grow_with_the_rows_that_may_be_taken_back(max_backtracking: int) -> None:
    layout = small_layout(max_backtracking=max_backtracking)
    assert layout.state.ring_tokens == 4 + max_backtracking
    assert layout.state.compressor_tokens == 1 + max_backtracking


def test_a_step_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="max_backtracking"):
        small_layout(max_backtracking=0)


def test_blocks_that_cut_a_group_are_refused() -> None:
    with pytest.raises(ValueError, match="blocks of 3 tokens"):
        small_layout(block_tokens=3)


def small_layout(*, max_backtracking: int = 1, block_tokens: int = 4) -> CacheLayout:
    needs = CacheNeeds(
        window_tokens=4,
        head_width=32,
        index_width=32,
        encoder_layers=1,
        layers=2,
        draft_layers=0,
        entry_ratios={0: 2},
        index_owners=(0,),
    )
    formats = CacheFormats(window="mxfp8", entry="fp4_e4m3x16", index="mxfp4", raw="float32")
    return cache_layout(
        needs, formats, row_bytes, max_backtracking=max_backtracking, block_tokens=block_tokens
    )


def state_regions(layout: CacheLayout) -> list[Region]:
    state = layout.state
    return [*state.windows, *state.drafters, *state.compressors.values()]


def all_regions(layout: CacheLayout) -> list[Region]:
    block = layout.block
    return [*state_regions(layout), *block.entries.values(), *block.index_keys.values()]


def assert_apart(regions: list[Region], stride_bytes: int) -> None:
    ordered = sorted(regions, key=lambda region: region.offset_bytes)
    for before, after in pairwise(ordered):
        assert before.end_bytes <= after.offset_bytes
    assert ordered[-1].end_bytes <= stride_bytes
