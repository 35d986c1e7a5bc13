"""For which decode steps does the kernel work out slots?

The twin is the model's own arithmetic, with the masks that the host leaves out where it knows them
to be true.

Shapes: T rows, Q sequences, B blocks of a sequence, W window, N numbers of a row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain

import torch

from deepinfer_core.cache.layout import CacheLayout
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.interfaces.operators.cache import StepSlotsSpec
from deepinfer_core.model.caches import model_cache_layout
from deepinfer_core.model.entries import entry_slots, pair_step
from deepinfer_core.model.step import StepInputs
from deepinfer_core.model.windows import window_step
from deepinfer_core.reference.cache_codec import ReferenceCacheCodec
from deepinfer_core.testing.kernel_cases.case import KernelCase, Tensors, poisoned
from deepinfer_core.testing.tiny import tiny_test_config

__all__ = ["cases"]

_BLOCK_TOKENS = 16
_BLOCKS = 20
_RATIOS = (1, 2)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """One sequence."""

    start: int
    rows: int = 1
    valid: int = 0
    cached: int = 0


def cases() -> list[KernelCase]:
    """First rows, rows around the edges of windows and blocks, several rows, replays."""
    edges = [0, 1, 2, 14, 15, 16, 17, 31, 32, 127, 128, 129, 300]
    return [
        _slots("one-row", [_Part(start=0)]),
        _slots("edges", [_Part(start=start) for start in edges]),
        _slots("edges", [_Part(start=start) for start in edges], window=150),
        _slots("verified", [_Part(start=start, rows=rows) for start, rows in _VERIFIED]),
        _slots(
            "replayed",
            [
                _Part(start=40, rows=3, valid=41, cached=44),
                _Part(start=50, rows=2, valid=47, cached=51),
                _Part(start=60, valid=60, cached=60),
            ],
        ),
        _slots("few-pairs", [_Part(start=33, rows=6), _Part(start=48, rows=4)], pair_tokens=4),
        _slots("model-rows-512", [_Part(start=s % 300) for s in range(512)], small=False),
    ]


_VERIFIED = [(0, 6), (1, 2), (30, 6), (127, 3), (128, 1), (20, 4)]


def _layout(pair_tokens: int) -> CacheLayout:
    """With a ring of so many tokens for pairs; 0: as many as the model's."""
    layout = model_cache_layout(
        tiny_test_config(),
        Numerics(),
        ReferenceCacheCodec(),
        max_backtracking=6,
        block_tokens=_BLOCK_TOKENS,
    )
    if not pair_tokens:
        return layout
    return replace(layout, state=replace(layout.state, compressor_tokens=pair_tokens))


def _slots(
    name: str,
    parts: list[_Part],
    *,
    window: int = 16,
    pair_tokens: int = 0,
    small: bool = True,
) -> KernelCase:
    layout = _layout(pair_tokens)
    rows = sum(part.rows for part in parts)

    def arguments(generator: torch.Generator) -> Tensors:
        positions = [range(part.start, part.start + part.rows) for part in parts]
        owners = [[number] * part.rows for number, part in enumerate(parts)]
        table_QB = torch.randint(1, 1 << 20, (len(parts), _BLOCKS), generator=generator)
        # The first block there is, and one that is not there: nothing is written into that.
        table_QB[0, parts[0].start // _BLOCK_TOKENS] = 0
        table_QB[-1, parts[-1].start // _BLOCK_TOKENS] = -1
        order = torch.randperm(4 * len(parts), generator=generator)
        return {
            "position_T": torch.tensor(list(chain.from_iterable(positions))),
            "sequence_T": torch.tensor(list(chain.from_iterable(owners))),
            "state_slot_Q": order[: len(parts)],
            "start_Q": torch.tensor([part.start for part in parts]),
            "row_count_Q": torch.tensor([part.rows for part in parts]),
            "valid_start_Q": torch.tensor([part.valid for part in parts]),
            "cached_end_Q": torch.tensor([part.cached for part in parts]),
            "block_table_QB": table_QB,
            "slot_TW": poisoned(rows, window, dtype=torch.int64),
            "number_NT": poisoned(4 + 2 * len(_RATIOS), rows, dtype=torch.int64),
        }

    def expect(given: Tensors) -> Tensors:
        step = _step(given, parts)
        windows, pairs = window_step(step, layout, window), pair_step(step, layout)
        assert windows.decode is not None
        numbers = [windows.write_slot_T, pairs.slot_T, pairs.partner_slot_T, pairs.partner_row_T]
        for ratio in _RATIOS:
            found = entry_slots(step, layout, ratio)
            numbers += [found.visible_T, found.slot_T]
        return {"slot_TW": windows.decode.slot_SW, "number_NT": torch.stack(numbers)}

    return KernelCase(
        operator="attention_step_slots",
        name=f"{name}-window-{window}",
        spec=StepSlotsSpec(
            window=window,
            ring_tokens=layout.state.ring_tokens,
            pair_tokens=layout.state.compressor_tokens,
            block_tokens=_BLOCK_TOKENS,
            ratios=_RATIOS,
        ),
        arguments=arguments,
        expect=expect,
        small=small,
        moved_bytes=0 if small else 8 * rows * (window + 10),
    )


def _step(given: Tensors, parts: list[_Part]) -> StepInputs:
    position_T = given["position_T"]
    nothing_T3 = torch.full((len(position_T), 3), -1, device=position_T.device)
    return StepInputs(
        token_T=torch.zeros_like(position_T),
        position_T=position_T,
        sequence_T=given["sequence_T"],
        previous_T3=nothing_T3,
        image_T=torch.zeros_like(position_T, dtype=torch.bool),
        image_previous_T3=torch.zeros_like(nothing_T3, dtype=torch.bool),
        embedding_TD=None,
        block_table_QB=given["block_table_QB"],
        state_slot_Q=given["state_slot_Q"],
        starts=tuple(part.start for part in parts),
        row_counts=tuple(part.rows for part in parts),
        valid_starts=tuple(part.valid for part in parts),
        cached_ends=tuple(part.cached for part in parts),
        sample_row_R=position_T[:0],
    )
