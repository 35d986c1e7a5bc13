"""Does every layer reach its own memory, and nobody else's?"""

import pytest
import torch
from deepinfer_core.cache.storage import Caches
from deepinfer_core.errors import EngineError
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


@pytest.fixture
def numbered() -> Caches:
    """Five blocks and five state slots, each filled with bytes of its own."""
    caches = allocate_caches(
        tiny_test_config(),
        Numerics(),
        CODEC,
        CpuDevice(),
        num_blocks=5,
        num_slots=5,
        max_backtracking=6,
    )
    for memory_PB in (caches.blocks_PB, caches.states_PB):
        place_PB = torch.arange(memory_PB.numel()).reshape(memory_PB.shape)
        memory_PB.copy_((place_PB * 31 + place_PB // 251) % 256)
    return caches


COPIES = pytest.mark.parametrize(
    ("name", "memory"), [("copy_blocks", "blocks_PB"), ("copy_slots", "states_PB")]
)


@COPIES
@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [(1, 2)],
        [(1, 2), (3, 4)],
        [(1, 2), (1, 3), (1, 4)],
        [(1, 2), (2, 3), (3, 4)],
        [(3, 4), (2, 3), (1, 2)],
        [(1, 2), (2, 1)],
        [(2, 2), (4, 1)],
        [(0, 1), (4, 0)],
    ],
    ids=str,
)
def test_destinations_hold_what_sources_held_before_and_nothing_else_changes(
    numbered: Caches, name: str, memory: str, pairs: list[tuple[int, int]]
) -> None:
    untouched = "states_PB" if memory == "blocks_PB" else "blocks_PB"
    before_PB, other_PB = (getattr(numbered, part).clone() for part in (memory, untouched))
    getattr(numbered, name)(pairs)
    came_from = list(range(5))
    for source, destination in pairs:
        came_from[destination] = source
    assert torch.equal(getattr(numbered, memory), before_PB[came_from])
    assert torch.equal(getattr(numbered, untouched), other_PB)


@COPIES
@pytest.mark.parametrize("pair", [(-1, 1), (1, -1), (5, 1), (1, 5)], ids=str)
def test_copying_what_does_not_exist_is_an_error_that_changes_nothing(
    numbered: Caches, name: str, memory: str, pair: tuple[int, int]
) -> None:
    before_PB = getattr(numbered, memory).clone()
    wrong = next(page for page in pair if page != 1)
    with pytest.raises(EngineError, match=f"(block|state slot) {wrong} was to be copied, of 5"):
        getattr(numbered, name)([(2, 3), pair])
    assert torch.equal(getattr(numbered, memory), before_PB)


@COPIES
def test_two_sources_for_one_destination_are_an_error_that_changes_nothing(
    numbered: Caches, name: str, memory: str
) -> None:
    before_PB = getattr(numbered, memory).clone()
    with pytest.raises(EngineError, match=r"\[3, 4, 3\] were to be written, some of them twice"):
        getattr(numbered, name)([(1, 3), (1, 4), (2, 3)])
    assert torch.equal(getattr(numbered, memory), before_PB)
