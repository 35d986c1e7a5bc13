"""Do recomputed and restored states have the bits of a run without cache?

Blocks of 16, a window of 16, six layers: what a row at h sees follows from 6 * 15 = 90 tokens in
front of it. Rows in front of h are fed again and write no entries. A state is compared by the rows
of its rings that rows from h on can still see.
"""

from itertools import pairwise

import pytest
import torch
from deepinfer_core.cache.recovery import Resume, resume_point
from deepinfer_core.cache.storage import Caches
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.evaluate import fresh_caches, text_step
from deepinfer_core.testing.steps import feed_prompt, replay_step
from deepinfer_core.testing.tiny import golden_tokens

TEXT = golden_tokens(150)
BLOCK, WINDOW, END = 16, 16, 128


def resumed(model: TextModel, *snapshots: int) -> Resume:
    return resume_point(
        cached_blocks=END // BLOCK,
        snapshots=snapshots,
        limit_tokens=len(TEXT) - 22,
        recovery="exact",
        block_tokens=BLOCK,
        window_tokens=WINDOW,
        layers=model.config.text_config.num_hidden_layers,
    )


def with_cached_entries(model: TextModel) -> Caches:
    """Entries up to END as an exact run leaves them, and state bytes that are not numbers."""
    caches = fresh_caches(model, len(TEXT), block_tokens=BLOCK)
    model.forward(text_step(TEXT, 0, END, caches), caches)
    caches.states_PB.fill_(0xFF)
    return caches


def seen_keys(model: TextModel, caches: Caches) -> list[torch.Tensor]:
    """Bytes of all keys that the row at END sees beside its own, of layers and drafter."""
    layers, drafts = caches.layout.state.windows, caches.layout.state.drafters
    pages = [*map(caches.window, range(len(layers))), *map(caches.drafter, range(len(drafts)))]
    ring_tokens = caches.layout.state.ring_tokens
    rows = [position % ring_tokens for position in range(END - WINDOW + 1, END)]
    return [page.data_PB[1].reshape(ring_tokens, -1)[rows] for page in pages]


def equal_bytes(found: list[torch.Tensor], expected: list[torch.Tensor]) -> list[bool]:
    return [torch.equal(one, other) for one, other in zip(found, expected, strict=True)]


@pytest.fixture(scope="session")
def cold(model: TextModel) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Logits from END on, and the keys seen at END, of a run without cache."""
    caches = fresh_caches(model, len(TEXT), block_tokens=BLOCK)
    model.forward(text_step(TEXT, 0, END, caches), caches)
    keys = [key.clone() for key in seen_keys(model, caches)]
    return model.forward(text_step(TEXT, END, len(TEXT), caches), caches), keys


def rerun(model: TextModel, start: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    caches = with_cached_entries(model)
    feed_prompt(model, TEXT, [END], caches, start=start, cached_end=END)
    keys = [key.clone() for key in seen_keys(model, caches)]
    caches = with_cached_entries(model)
    ends = [len(TEXT)]
    return feed_prompt(model, TEXT, ends, caches, start=start, cached_end=END), keys


def test_recomputing_from_where_the_rule_says_gives_the_bits_of_a_cold_run(
    model: TextModel, cold: tuple[torch.Tensor, list[torch.Tensor]]
) -> None:
    found = resumed(model)
    # 128 - 90 = 38, in the block that starts at 32.
    assert (found.start, found.valid_start, found.cached_tokens) == (32, 32, END)
    logits_RV, keys = rerun(model, found.start)
    assert torch.equal(logits_RV, cold[0])
    assert all(equal_bytes(keys, cold[1]))


def test_windows_reach_exactly_as_far_back_as_the_rule_says(
    model: TextModel, cold: tuple[torch.Tensor, list[torch.Tensor]]
) -> None:
    assert all(equal_bytes(rerun(model, 38)[1], cold[1]))
    # One window later the last layer's keys miss what all layers below it bring from there.
    assert not all(equal_bytes(rerun(model, 38 + WINDOW - 1)[1], cold[1]))


@pytest.mark.parametrize("at", [48, 112, 128])
def test_a_restored_snapshot_gives_the_bits_of_a_cold_run(
    model: TextModel, cold: tuple[torch.Tensor, list[torch.Tensor]], at: int
) -> None:
    caches = fresh_caches(model, len(TEXT), block_tokens=BLOCK)
    wide = Caches(
        caches.layout, model.parts.device, num_blocks=caches.blocks_PB.shape[0], num_slots=4
    )
    model.forward(text_step(TEXT, 0, at, wide), wide)
    wide.copy_slots([(1, 3)])
    if at < END:
        model.forward(text_step(TEXT, at, END, wide), wide)
    wide.states_PB[:3].fill_(0xFF)
    found = resumed(model, at)
    assert (found.start, found.valid_start, found.restore_at) == (at, 0, at)
    wide.copy_slots([(3, 1)])
    entries_PB = wide.blocks_PB[1 : 1 + END // BLOCK]
    before_PB = entries_PB.clone()
    logits = []
    for begin, end in pairwise([found.start, END, len(TEXT)]):
        if begin < end:
            step = replay_step(TEXT, begin, end, wide, cached_end=END)
            logits.append(model.forward(step, wide))
    assert torch.equal(logits[-1], cold[0])
    assert torch.equal(entries_PB, before_PB)
