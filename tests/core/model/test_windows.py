"""Does every row see exactly the keys of its window, in order of position?

The expectation is written per row and position; the code under test computes with whole tensors.
"""

from dataclasses import dataclass

import pytest
import torch
from deepinfer_core.cache.layout import CacheLayout
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.caches import model_cache_layout
from deepinfer_core.model.step import StepInputs
from deepinfer_core.model.windows import WindowStep, window_step
from deepinfer_core.reference.cache_codec import ReferenceCacheCodec
from deepinfer_core.testing.tiny import tiny_test_config

WINDOW, ROWS, RING = 16, 6, 22


@dataclass(frozen=True, kw_only=True)
class Part:
    """One sequence of a step."""

    start: int
    rows: int
    slot: int = 1
    valid: int = 0


@pytest.fixture(scope="module")
def layout() -> CacheLayout:
    return model_cache_layout(
        tiny_test_config(), Numerics(), ReferenceCacheCodec(), max_backtracking=ROWS
    )


def step_of(*parts: Part) -> StepInputs:
    position_T = torch.cat([torch.arange(p.start, p.start + p.rows) for p in parts])
    sequence_T = torch.cat([torch.full((p.rows,), n) for n, p in enumerate(parts)])
    nothing_T3 = torch.full((len(position_T), 3), -1)
    return StepInputs(
        token_T=torch.zeros_like(position_T),
        position_T=position_T,
        sequence_T=sequence_T,
        previous_T3=nothing_T3,
        image_T=torch.zeros_like(position_T, dtype=torch.bool),
        image_previous_T3=torch.zeros_like(nothing_T3, dtype=torch.bool),
        embedding_TD=None,
        block_table_QB=torch.ones((len(parts), 1), dtype=torch.int64),
        state_slot_Q=torch.tensor([p.slot for p in parts]),
        starts=tuple(p.start for p in parts),
        row_counts=tuple(p.rows for p in parts),
        valid_starts=tuple(p.valid for p in parts),
        sample_row_R=torch.zeros(0, dtype=torch.int64),
    )


def seen_positions(windows: WindowStep, parts: tuple[Part, ...]) -> dict[int, list[int | None]]:
    """Translate every row's list back to positions, by simulating rings and workspace."""
    rows = [(part, part.start + n) for part in parts for n in range(part.rows)]
    seen: dict[int, list[int | None]] = {}
    if windows.decode is not None:
        chosen = windows.decode.row_S
        numbers = range(len(rows)) if chosen is None else chosen.tolist()
        for number, slots in zip(numbers, windows.decode.slot_SW.tolist(), strict=True):
            part, _ = rows[number]
            content = {
                part.slot * RING + q % RING: q
                for q in range(part.start + part.rows - RING, part.start + part.rows)
            }
            seen[number] = [None if slot < 0 else content[slot] for slot in slots]
    if windows.chunks is not None:
        chosen = windows.chunks.row_S
        numbers = range(len(rows)) if chosen is None else chosen.tolist()
        chunked = [part for part in parts if part.rows > ROWS]
        workspace: list[int | None] = []
        history = iter(windows.chunks.history_slot_H.tolist())
        for part in chunked:
            content = {part.slot * RING + q % RING: q for q in range(part.start - RING, part.start)}
            taken = [next(history) for _ in range(WINDOW - 1)]
            workspace += [None if slot < 0 else content[slot] for slot in taken]
        for number in numbers:
            workspace.append(rows[number][1])
        for number, slots in zip(numbers, windows.chunks.slot_SW.tolist(), strict=True):
            seen[number] = [None if slot < 0 else workspace[slot] for slot in slots]
    return seen


CASES = {
    "first row": (Part(start=0, rows=1),),
    "decoding": (Part(start=40, rows=1),),
    "verification": (Part(start=40, rows=6),),
    "shortest chunk": (Part(start=40, rows=7),),
    "prompt": (Part(start=0, rows=50),),
    "later chunk": (Part(start=9, rows=23, slot=2),),
    "two prompts": (Part(start=0, rows=9, slot=2), Part(start=30, rows=8)),
    "mixed": (
        Part(start=5, rows=2),
        Part(start=3, rows=20, slot=3),
        Part(start=33, rows=6, slot=2),
    ),
    "replay": (Part(start=32, rows=30, valid=32), Part(start=36, rows=3, slot=2, valid=32)),
    "replay before": (Part(start=40, rows=10, valid=33),),
}


@pytest.mark.parametrize("parts", CASES.values(), ids=CASES.keys())
def test_rows_list_the_positions_of_their_window_in_order(
    layout: CacheLayout, parts: tuple[Part, ...]
) -> None:
    seen = seen_positions(window_step(step_of(*parts), layout, WINDOW), parts)
    number = 0
    for part in parts:
        for position in range(part.start, part.start + part.rows):
            window = range(position - WINDOW + 1, position + 1)
            assert seen[number] == [q if q >= part.valid else None for q in window]
            number += 1
    assert len(seen) == number


@pytest.mark.parametrize("parts", CASES.values(), ids=CASES.keys())
def test_the_last_rows_of_each_sequence_enter_its_ring(
    layout: CacheLayout, parts: tuple[Part, ...]
) -> None:
    slots = window_step(step_of(*parts), layout, WINDOW).write_slot_T.tolist()
    expected = []
    for part in parts:
        end = part.start + part.rows
        for position in range(part.start, end):
            is_kept = position >= end - RING
            expected.append(part.slot * RING + position % RING if is_kept else -1)
    assert slots == expected


@pytest.mark.parametrize("rows", [1, 5, 6])
def test_few_rows_read_the_ring(layout: CacheLayout, rows: int) -> None:
    windows = window_step(step_of(Part(start=20, rows=rows)), layout, WINDOW)
    assert windows.decode is not None
    assert windows.decode.row_S is None
    assert windows.chunks is None


def test_many_rows_read_a_workspace(layout: CacheLayout) -> None:
    windows = window_step(step_of(Part(start=20, rows=7)), layout, WINDOW)
    assert windows.decode is None
    assert windows.chunks is not None
    assert windows.chunks.row_S is None
