"""Does every slot have a place of its own, and does the segment leave nothing behind?"""

import os
from dataclasses import replace

import pytest
from deepinfer_core.errors import ConfigError
from deepinfer_core.stores.fetcher.layout import PAGE_BYTES, segment_layout
from deepinfer_core.stores.fetcher.segment import Segment, new_descriptor
from deepinfer_core.testing.store_groups import BLOCKS, STATES

LARGE = replace(STATES, block_bytes=10_000)


def test_slots_begin_on_pages_and_do_not_overlap() -> None:
    layout = segment_layout([BLOCKS, LARGE], arriving_bytes=100_000, departing_bytes=60_000)
    blocks, states = layout.groups["blocks"], layout.groups["state"]
    # three quarters in slots of one page, a quarter in slots of three
    assert (blocks.arriving, blocks.departing) == (75_000 // 4096, 45_000 // 4096)
    assert (states.arriving, states.departing) == (25_000 // 12_288, 15_000 // 12_288)
    places = [
        one.place(number)
        for one in layout.groups.values()
        for number in range(one.arriving + one.departing)
    ]
    assert all(one.start % PAGE_BYTES == 0 for one in places)
    edges = [PAGE_BYTES, *(edge for one in places for edge in (one.start, one.stop))]
    assert edges == sorted(edges)
    assert [one.stop - one.start for one in places[:1] + places[-1:]] == [3888, 10_000]
    assert places[-1].stop <= layout.size_bytes == states.end_bytes


def test_a_group_alone_has_all_of_a_budget() -> None:
    layout = segment_layout([LARGE], arriving_bytes=3 * 12_288, departing_bytes=12_288)
    assert (layout.groups["state"].arriving, layout.groups["state"].departing) == (3, 1)


def test_a_budget_without_room_for_a_block_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"engine\.kv_store\.write_bytes is 12287"):
        segment_layout([LARGE], arriving_bytes=12_288, departing_bytes=12_287)
    with pytest.raises(ConfigError, match=r"engine\.kv_store\.fetch_bytes is 1,"):
        segment_layout([LARGE], arriving_bytes=1, departing_bytes=12_288)


def test_two_views_show_the_same_bytes_and_generations() -> None:
    layout = segment_layout([BLOCKS, LARGE], arriving_bytes=100_000, departing_bytes=60_000)
    descriptor = new_descriptor(layout.size_bytes)
    one, other = Segment(descriptor, layout), Segment(descriptor, layout)
    os.close(descriptor)
    places = [
        (name, number)
        for name, slots in layout.groups.items()
        for number in range(slots.arriving + slots.departing)
    ]
    for at, place in enumerate(places):
        view = one.view(*place)
        view[:] = bytes([at + 1]) * len(view)
        assert [one.renew(*place) for _ in range(at)] == list(range(1, at + 1))
    for at, place in enumerate(places):
        view = other.view(*place)
        assert view == bytes([at + 1]) * layout.groups[place[0]].block_bytes
        assert other.generation(*place) == at
