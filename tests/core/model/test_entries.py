"""Are compressed entries written when they are complete, seen from then on, and found again?"""

import pytest
import torch
from deepinfer_core.cache.storage import Caches
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.caches import allocate_caches
from deepinfer_core.model.entries import (
    EntryStep,
    entry_slots,
    entry_step,
    first_positions,
    pair_step,
)
from deepinfer_core.model.evaluate import text_step
from deepinfer_core.model.rope import plain_frequencies, rotation
from deepinfer_core.reference.cache_codec import ReferenceCacheCodec
from deepinfer_core.reference.device import CpuDevice
from deepinfer_core.testing.steps import join_steps
from deepinfer_core.testing.tiny import tiny_test_config

FREQUENCY_P = plain_frequencies(16, 10000)
TOKENS = [5] * 40
BLOCKS = [4, 2, 6]


@pytest.fixture(scope="module")
def caches() -> Caches:
    return allocate_caches(
        tiny_test_config(),
        Numerics(),
        ReferenceCacheCodec(),
        CpuDevice(),
        num_blocks=2,
        num_slots=3,
        max_backtracking=6,
        block_tokens=16,
    )


def entries(caches: Caches, start: int, stop: int, ratio: int) -> EntryStep:
    step = text_step(TOKENS, start, stop, caches, block_ids=BLOCKS)
    by = rotation(first_positions(step.position_T, ratio), FREQUENCY_P)
    return entry_step(step, caches.layout, ratio, by)


@pytest.mark.parametrize("ratio", [1, 2])
def test_a_row_sees_the_groups_that_end_at_or_before_it(caches: Caches, ratio: int) -> None:
    step = entries(caches, 0, 40, ratio)
    for position, visible in enumerate(step.visible_T.tolist()):
        complete = [g for g in range(40) if (g + 1) * ratio - 1 <= position]
        assert visible == len(complete)


@pytest.mark.parametrize("ratio", [1, 2])
@pytest.mark.parametrize(("start", "stop"), [(0, 1), (0, 2), (1, 2), (13, 35), (15, 17), (32, 40)])
def test_a_row_writes_the_entry_that_it_completes(
    caches: Caches, ratio: int, start: int, stop: int
) -> None:
    per_block = 16 // ratio
    expected = []
    for position in range(start, stop):
        entry = position // ratio
        slot = BLOCKS[entry // per_block] * per_block + entry % per_block
        expected.append(slot if (position + 1) % ratio == 0 else -1)
    assert entries(caches, start, stop, ratio).slot_T.tolist() == expected


def test_an_entry_turns_by_its_first_token(caches: Caches) -> None:
    turned = entries(caches, 10, 14, 2).rotation
    expected = rotation(torch.tensor([10, 10, 12, 12]), FREQUENCY_P)
    assert torch.equal(turned.cosine_TP, expected.cosine_TP)


def test_selected_entries_are_found_in_their_blocks(caches: Caches) -> None:
    step = entries(caches, 30, 31, 2)
    slots = step.slots_of(torch.tensor([[0, 7, 8, 15, -1]]), ReferenceCacheCodec())
    assert slots.tolist() == [[32, 39, 16, 23, -1]]


@pytest.mark.parametrize(
    ("start", "stop", "widest"), [(0, 1, 1), (0, 2, 1), (0, 4, 2), (38, 40, 20)]
)
def test_scores_are_as_wide_as_the_row_that_sees_most(
    caches: Caches, start: int, stop: int, widest: int
) -> None:
    assert entries(caches, start, stop, 2).most_visible == widest


def test_a_row_without_a_block_writes_nothing(caches: Caches) -> None:
    step = text_step(TOKENS, 15, 18, caches, block_ids=[3, -1])
    assert entry_slots(step, caches.layout, 1).slot_T.tolist() == [63, -1, -1]


def test_a_pair_meets_in_the_step_or_in_the_ring(caches: Caches) -> None:
    steps = [
        text_step(TOKENS, 8, 11, caches, state_slot=2),
        text_step(TOKENS, 5, 7, caches, state_slot=1),
    ]
    pairs = pair_step(join_steps(steps), caches.layout)
    assert pairs.partner_row_T.tolist() == [-1, 0, 1, -1, 3]
    ring = 7
    assert pairs.partner_slot_T.tolist() == [14 + 7 % ring, 14 + 1, 14 + 2, 7 + 4, 7 + 5]
    assert pairs.slot_T.tolist() == [14 + 1, 14 + 2, 14 + 3, 7 + 5, 7 + 6]


def test_only_the_last_raw_rows_of_a_chunk_are_kept(caches: Caches) -> None:
    pairs = pair_step(text_step(TOKENS, 0, 10, caches), caches.layout)
    assert pairs.slot_T.tolist() == [-1, -1, -1, *(7 + p % 7 for p in range(3, 10))]
