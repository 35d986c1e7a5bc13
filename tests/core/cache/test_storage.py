"""Does every layer reach its own memory, and nobody else's?"""

import pytest
import torch
from deepinfer_core.cache.storage import Caches
from deepinfer_core.interfaces.attention import CachePages
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.caches import allocate_caches
from deepinfer_core.reference.cache_codec import ReferenceCacheCodec
from deepinfer_core.reference.device import CpuDevice
from deepinfer_core.testing.tiny import tiny_test_config

CODEC = ReferenceCacheCodec()


@pytest.fixture
def caches() -> Caches:
    return allocate_caches(
        tiny_test_config(),
        Numerics(),
        CODEC,
        CpuDevice(),
        num_blocks=3,
        num_slots=2,
        max_backtracking=6,
    )


def all_pages(caches: Caches) -> list[CachePages]:
    state = [*map(caches.window, range(12)), *map(caches.drafter, range(3))]
    owned = [pages(layer) for layer in (2, 4, 6) for pages in (caches.entries, caches.index_keys)]
    return [*state, *map(caches.compressor, (2, 4)), *owned]


def test_new_caches_are_zero(caches: Caches) -> None:
    assert not caches.blocks_PB.any()
    assert not caches.states_PB.any()


def test_pages_are_views_of_blocks_or_state_slots(caches: Caches) -> None:
    for pages in all_pages(caches):
        assert pages.data_PB.shape[0] in (2, 3)
        row = CODEC.row_bytes(pages.number_format, pages.width)
        assert pages.data_PB.shape[1] == pages.rows_per_page * row


def test_what_one_region_stores_changes_no_other_region(caches: Caches) -> None:
    everything = all_pages(caches)
    exact = 6.0  # the largest e2m1 number, so every format stores it without error
    for number, pages in enumerate(everything):
        slot_T = torch.arange(pages.rows_per_page) + pages.rows_per_page
        CODEC.store(torch.full((pages.rows_per_page, pages.width), exact), slot_T, pages)
        for later in everything[number + 1 :]:
            assert not later.data_PB.any()
        assert pages.data_PB[1].any()
        assert not pages.data_PB[0].any()
    for pages in everything:
        read_TD = torch.empty(pages.rows_per_page, pages.width)
        slot_T = torch.arange(pages.rows_per_page) + pages.rows_per_page
        CODEC.load(pages, slot_T, read_TD)
        assert torch.equal(read_TD, torch.full_like(read_TD, exact))
