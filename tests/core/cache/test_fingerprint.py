"""Does everything that changes the meaning of a cached byte change the layout's fingerprint?"""

import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from deepinfer_core.cache.fingerprint import CODEC_VERSION, layout_fingerprint
from deepinfer_core.cache.layout import CacheLayout, cache_layout
from deepinfer_core.cache.needs import CacheFormats, CacheNeeds
from deepinfer_core.numeric import row_bytes

NEEDS = CacheNeeds(
    window_tokens=4,
    head_width=32,
    index_width=32,
    encoder_layers=1,
    layers=2,
    draft_layers=1,
    entry_ratios={0: 2, 1: 1},
    index_owners=(0, 1),
)
FORMATS = CacheFormats(window="mxfp8", entry="fp4_e4m3x16", index="mxfp4", raw="float32")


def layout_of(
    needs: CacheNeeds = NEEDS,
    formats: CacheFormats = FORMATS,
    *,
    max_backtracking: int = 6,
    block_tokens: int = 4,
) -> CacheLayout:
    return cache_layout(
        needs, formats, row_bytes, max_backtracking=max_backtracking, block_tokens=block_tokens
    )


def test_equal_layouts_have_one_fingerprint_of_16_bytes() -> None:
    assert layout_fingerprint(layout_of()) == layout_fingerprint(layout_of())
    assert len(layout_fingerprint(layout_of())) == 16


@pytest.mark.skipif(sys.byteorder != "little", reason="the byte order is bound")
def test_the_fingerprint_is_the_same_in_every_process_and_release() -> None:
    # A change of this number makes every stored block miss: make it on purpose.
    assert layout_fingerprint(layout_of()).hex() == "fbe7e843182f3fb191fa40e95029b22e"


@pytest.mark.parametrize(
    "other",
    [
        layout_of(block_tokens=8),
        layout_of(max_backtracking=7),
        layout_of(replace(NEEDS, window_tokens=5)),
        layout_of(replace(NEEDS, entry_ratios={0: 2, 1: 2})),
        layout_of(replace(NEEDS, entry_ratios={0: 2, 2: 1}, layers=3, index_owners=(0, 2))),
        layout_of(replace(NEEDS, index_owners=(0,))),
        layout_of(replace(NEEDS, draft_layers=2)),
        layout_of(replace(NEEDS, head_width=64)),
        layout_of(formats=replace(FORMATS, entry="mxfp8")),
        layout_of(formats=replace(FORMATS, raw="float64")),
    ],
    ids=[
        "block", "ring", "window", "ratio", "owner", "index", "drafter", "width", "entry", "raw",
    ],
)  # fmt: skip
def test_another_layout_has_another_fingerprint(other: CacheLayout) -> None:
    assert layout_fingerprint(other) != layout_fingerprint(layout_of())


def test_formats_of_equal_size_are_told_apart() -> None:
    layout = layout_of()
    entries = {
        layer: replace(region, number_format="another")
        for layer, region in layout.block.entries.items()
    }
    other = replace(layout, block=replace(layout.block, entries=entries))
    assert layout_fingerprint(other) != layout_fingerprint(layout)


def variants(value: Any) -> Iterator[Any]:
    """The value with one leaf changed, once for each of its leaves."""
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            for other in variants(getattr(value, field.name)):
                yield replace(value, **{field.name: other})
    elif isinstance(value, dict):
        for key in value:
            yield from (value | {key: other} for other in variants(value[key]))
            yield {(k + 50 if k == key else k): item for k, item in value.items()}
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            for other in variants(item):
                yield (*value[:number], other, *value[number + 1 :])
    else:
        yield {int: lambda: value + 1, bool: lambda: not value, str: lambda: value + "x"}[
            type(value)
        ]()


def test_every_single_field_of_a_layout_is_bound() -> None:
    changed = list(variants(layout_of()))
    prints = {layout_fingerprint(layout) for layout in (layout_of(), *changed)}
    assert len(prints) == 1 + len(changed)
    assert len(changed) > 60


def test_the_version_of_the_codecs_is_bound() -> None:
    assert layout_fingerprint(layout_of(), CODEC_VERSION + 1) != layout_fingerprint(layout_of())


def test_the_byte_order_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    here = layout_fingerprint(layout_of())
    monkeypatch.setattr(sys, "byteorder", "big" if sys.byteorder == "little" else "little")
    assert layout_fingerprint(layout_of()) != here


def test_the_order_in_which_owners_are_listed_does_not_matter() -> None:
    layout = layout_of()
    turned = dict(reversed(list(layout.block.entries.items())))
    other = replace(layout, block=replace(layout.block, entries=turned))
    assert layout_fingerprint(other) == layout_fingerprint(layout)
