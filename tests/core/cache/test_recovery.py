"""How much of a prompt is reused, and which of its tokens are fed again?

The full model has blocks of 128, a window of 128 and 40 layers: 40 * 127 = 5080 tokens of history
decide about a state. The small one has blocks and a window of 16 and 12 layers: 180 tokens.
"""

from typing import Any

import pytest
from deepinfer_core.cache.recovery import Resume, resume_point
from deepinfer_core.errors import ConfigError
from hypothesis import given
from hypothesis import strategies as st

FULL: dict[str, Any] = {"block_tokens": 128, "window_tokens": 128, "layers": 40}
SMALL: dict[str, Any] = {"block_tokens": 16, "window_tokens": 16, "layers": 12}

SITUATIONS = st.fixed_dictionaries(
    {
        "cached_blocks": st.integers(0, 40),
        "snapshots": st.sets(st.integers(1, 40)),
        "limit_tokens": st.integers(-5, 700),
        "recovery": st.sampled_from(["exact", "bounded"]),
        "sizes": st.sampled_from([(16, 16, 12), (16, 16, 2), (4, 16, 3), (16, 5, 3), (8, 8, 1)]),
    }
)


def resume(
    blocks: int, limit: int, *snapshots: int, recovery: Any = "exact", sizes: Any = None
) -> Resume:
    return resume_point(
        cached_blocks=blocks,
        snapshots=snapshots,
        limit_tokens=limit,
        recovery=recovery,
        **(sizes or FULL),
    )


def in_situation(situation: dict[str, Any], **changes: Any) -> Resume:
    block, window, layers = situation["sizes"]
    return resume_point(
        **{
            "cached_blocks": situation["cached_blocks"],
            "snapshots": {block * number for number in situation["snapshots"]},
            "limit_tokens": situation["limit_tokens"],
            "recovery": situation["recovery"],
            "block_tokens": block,
            "window_tokens": window,
            "layers": layers,
        }
        | changes
    )


@pytest.mark.parametrize("recovery", ["exact", "bounded"])
@pytest.mark.parametrize(
    ("limit", "cached"),
    [(-6, 0), (0, 0), (1, 0), (127, 0), (128, 128), (129, 128), (255, 128), (256, 256)],
)
def test_whole_blocks_up_to_the_limit_are_reused(limit: int, cached: int, recovery: Any) -> None:
    assert resume(3, limit, recovery=recovery).cached_tokens == cached


@pytest.mark.parametrize(
    ("prompt", "cached"),
    [(133, 0), (134, 0), (261, 0), (262, 128), (263, 128), (389, 128), (390, 256), (640, 384)],
)
def test_a_prompt_keeps_a_window_and_six_rows_behind_what_it_reuses(
    prompt: int, cached: int
) -> None:
    assert resume(9, prompt - 134).cached_tokens == cached


@pytest.mark.parametrize(("blocks", "cached"), [(0, 0), (1, 128), (2, 256), (3, 256)])
def test_no_more_than_the_cached_blocks_are_reused(blocks: int, cached: int) -> None:
    assert resume(blocks, 300).cached_tokens == cached


@pytest.mark.parametrize("recovery", ["exact", "bounded"])
def test_without_cached_blocks_everything_is_computed(recovery: Any) -> None:
    cold = Resume(cached_tokens=0, start=0, valid_start=0, restore_at=None, is_exact=True)
    assert resume(0, 1000, 128, recovery=recovery) == cold
    assert resume(9, 127, 128, recovery=recovery) == cold
    assert cold.replayed_tokens == 0


@pytest.mark.parametrize("recovery", ["exact", "bounded"])
def test_with_a_snapshot_where_the_blocks_end_nothing_is_fed_again(recovery: Any) -> None:
    found = resume(8, 5000, 512, 1024, recovery=recovery)
    assert found == Resume(1024, start=1024, valid_start=0, restore_at=1024, is_exact=True)
    assert found.replayed_tokens == 0


@pytest.mark.parametrize("recovery", ["exact", "bounded"])
def test_with_a_snapshot_one_block_earlier_that_block_is_fed_again(recovery: Any) -> None:
    found = resume(8, 5000, 512, 896, recovery=recovery)
    assert found == Resume(1024, start=896, valid_start=0, restore_at=896, is_exact=True)
    assert found.replayed_tokens == 128


def test_exact_recovery_walks_back_to_the_last_snapshot_there_is() -> None:
    found = resume(60, 7680, 2688, 3072)
    assert found == Resume(7680, start=3072, valid_start=0, restore_at=3072, is_exact=True)


def test_exact_recovery_without_a_near_snapshot_feeds_as_far_back_as_windows_reach() -> None:
    # 7680 - 40 * 127 = 2600, in the block that starts at 2560.
    found = resume(60, 7680, 1024)
    assert found == Resume(7680, start=2560, valid_start=2560, restore_at=None, is_exact=True)
    assert found.replayed_tokens == 5120


def test_each_layer_reaches_back_by_a_window_without_the_row_itself() -> None:
    # 64 - 4 * 15 = 4; with 4 * 16 everything would be fed.
    sizes = {"block_tokens": 4, "window_tokens": 16, "layers": 4}
    assert resume(16, 64, sizes=sizes).start == 4


def test_a_snapshot_at_the_place_where_feeding_would_start_is_restored() -> None:
    found = resume(60, 7680, 2560)
    assert found == Resume(7680, start=2560, valid_start=0, restore_at=2560, is_exact=True)


def test_bounded_recovery_feeds_one_window_and_is_not_exact() -> None:
    found = resume(8, 5000, 768, recovery="bounded")
    assert found == Resume(1024, start=896, valid_start=896, restore_at=None, is_exact=False)
    assert found.replayed_tokens == 128


def test_a_snapshot_behind_the_limit_is_passed_over() -> None:
    assert resume(8, 1023, 1024, 768).restore_at == 768


@pytest.mark.parametrize(("blocks", "start"), [(1, 0), (11, 0), (12, 0), (13, 16), (20, 128)])
def test_the_small_model_is_fed_180_tokens_and_the_rest_of_a_block(blocks: int, start: int) -> None:
    # 12 blocks are 192 tokens: 12 tokens are out of reach, which is no whole block.
    found = resume(blocks, 400, sizes=SMALL)
    assert found == Resume(16 * blocks, start, valid_start=start, restore_at=None, is_exact=True)


@pytest.mark.parametrize(("blocks", "start"), [(1, 0), (2, 16), (3, 32)])
def test_a_bounded_replay_of_a_short_prefix_is_exact(blocks: int, start: int) -> None:
    found = resume(blocks, 400, sizes=SMALL, recovery="bounded")
    assert found == Resume(16 * blocks, start, start, restore_at=None, is_exact=start == 0)


@pytest.mark.parametrize("window", [15, 16, 17])
def test_a_window_is_replayed_whatever_the_block(window: int) -> None:
    sizes = SMALL | {"window_tokens": window}
    assert resume(20, 400, sizes=sizes, recovery="bounded").replayed_tokens == window


def test_an_unknown_recovery_is_refused() -> None:
    with pytest.raises(ConfigError, match='recovery "off"'):
        resume(1, 200, recovery="off")


@given(SITUATIONS)
def test_reuse_keeps_its_limits(situation: dict[str, Any]) -> None:
    block = situation["sizes"][0]
    found = in_situation(situation)
    assert 0 <= found.cached_tokens <= max(0, situation["limit_tokens"])
    assert found.cached_tokens <= block * situation["cached_blocks"]
    assert found.cached_tokens % block == 0
    assert 0 <= found.start <= found.cached_tokens
    # Another block would be too much, or is not there.
    more = found.cached_tokens + block
    assert more > situation["limit_tokens"] or more > block * situation["cached_blocks"]


@given(SITUATIONS)
def test_window_keys_are_whole_restored_or_begin_at_the_first_row(
    situation: dict[str, Any],
) -> None:
    found = in_situation(situation)
    if found.restore_at is None:
        assert found.valid_start == found.start
    else:
        assert found.valid_start == 0
        assert found.restore_at == found.start
        assert found.start // situation["sizes"][0] in situation["snapshots"]


@given(SITUATIONS, st.integers(0, 5))
def test_more_cached_blocks_never_mean_less_reuse_or_an_earlier_start(
    situation: dict[str, Any], more: int
) -> None:
    before = in_situation(situation)
    after = in_situation(situation, cached_blocks=situation["cached_blocks"] + more)
    assert after.cached_tokens >= before.cached_tokens
    assert after.start >= before.start


@given(SITUATIONS, st.integers(1, 40))
def test_one_more_snapshot_never_means_an_earlier_start_or_less_reuse(
    situation: dict[str, Any], number: int
) -> None:
    before = in_situation(situation)
    after = in_situation(situation | {"snapshots": situation["snapshots"] | {number}})
    assert after.cached_tokens == before.cached_tokens
    assert after.start >= before.start
    assert after.is_exact >= before.is_exact


@given(SITUATIONS)
def test_exact_recovery_starts_at_the_last_snapshot_or_within_reach_of_it(
    situation: dict[str, Any],
) -> None:
    block, window, layers = situation["sizes"]
    found = in_situation(situation, recovery="exact")
    assert found.is_exact
    usable = [block * n for n in situation["snapshots"] if block * n <= found.cached_tokens]
    assert found.start >= max(usable, default=0)
    assert found.start % block == 0
    if found.restore_at is None:
        reach = layers * (window - 1)
        assert found.start == 0 or found.start <= found.cached_tokens - reach
        assert found.replayed_tokens < reach + block


@given(SITUATIONS)
def test_bounded_recovery_never_feeds_more_than_a_window_again(situation: dict[str, Any]) -> None:
    window = situation["sizes"][1]
    found = in_situation(situation, recovery="bounded")
    assert found.replayed_tokens <= window
    exact = in_situation(situation, recovery="exact")
    assert found.cached_tokens == exact.cached_tokens
    assert found.is_exact == (exact.replayed_tokens <= window)
    assert found == exact or not found.is_exact
