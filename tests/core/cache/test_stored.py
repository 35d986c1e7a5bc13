"""Do stored groups say what lies in a block and in a state, and of what use each is?"""

from dataclasses import replace
from pathlib import Path

import pytest
from deepinfer_core.cache.fingerprint import layout_fingerprint
from deepinfer_core.cache.layout import CacheLayout
from deepinfer_core.cache.stored import stored_groups
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.caches import model_cache_layout
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.reference.cache_codec import ReferenceCacheCodec


@pytest.fixture(scope="module")
def full() -> CacheLayout:
    import deepinfer_core.model as room

    config = ModelConfig.from_file(next(Path(room.__path__[0], "data").glob("*.json")))
    return model_cache_layout(config, Numerics(), ReferenceCacheCodec(), max_backtracking=6)


def test_a_block_of_the_full_model_is_stored_in_113920_bytes(full: CacheLayout) -> None:
    # 2.5 entries a token of 288 bytes and 68 of index key, 128 tokens: no byte of the padding.
    blocks, _ = stored_groups(full, truncates=False)
    assert (blocks.block_tokens, blocks.block_bytes) == (128, 113_920)
    assert (blocks.reuse, blocks.replay_tokens) == ("leading", 0)


def test_a_state_of_a_truncated_full_model_is_stored_in_1415040_bytes(full: CacheLayout) -> None:
    # 20 layers of 134 rows of 528 bytes; a window of 128 makes up for it.
    _, state = stored_groups(full, truncates=True)
    assert (state.name, state.block_tokens, state.block_bytes) == ("state", 128, 1_415_040)
    assert (state.reuse, state.replay_tokens) == ("last", 128)


def test_a_whole_state_has_the_rings_of_all_layers_and_of_the_drafter(full: CacheLayout) -> None:
    # 40 layers and 3 of the drafter; the place of the drafter's is aligned to 32 bytes.
    _, state = stored_groups(full, truncates=False)
    assert state.name == "whole_state"
    assert state.block_bytes == full.state.drafters[-1].end_bytes
    assert 0 <= state.block_bytes - (40 + len(full.state.drafters)) * 134 * 528 < 2 * 32
    assert len(full.state.drafters) == 3


def test_blocks_carry_the_fingerprint_of_the_layout(full: CacheLayout) -> None:
    other = replace(full, max_backtracking=7)
    for layout in (full, other):
        for truncates in (True, False):
            blocks, _ = stored_groups(layout, truncates=truncates)
            assert blocks.layout == layout_fingerprint(layout)
    assert layout_fingerprint(full) != layout_fingerprint(other)


def test_the_fingerprint_of_a_state_binds_the_layout_and_what_it_holds(full: CacheLayout) -> None:
    found = [
        stored_groups(layout, truncates=truncates)[1].layout
        for layout in (full, replace(full, max_backtracking=7))
        for truncates in (True, False)
    ]
    assert len({*found, layout_fingerprint(full)}) == 5


def test_a_whole_state_binds_whose_drafts_it_is_for(full: CacheLayout) -> None:
    ours, theirs = (stored_groups(full, truncates=False, drafter=one)[1] for one in ("a", "b"))
    assert ours.layout != theirs.layout
    short = [stored_groups(full, truncates=True, drafter=one)[1] for one in ("a", "b")]
    assert short[0].layout == short[1].layout


def test_groups_name_the_formats_of_their_rows(full: CacheLayout) -> None:
    blocks, state = stored_groups(full, truncates=True)
    assert blocks.number_format == "fp4_e4m3x16+mxfp4"
    assert state.number_format == "mxfp8"
