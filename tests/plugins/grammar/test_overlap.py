"""What a benchmark reads from when masks were filled and when forward passes ran."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def overlap() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        import grammar_overlap
        import grammar_timeline

        yield SimpleNamespace(**(vars(grammar_timeline) | vars(grammar_overlap)))
        for name in ("grammar_overlap", "grammar_timeline", "paired_ratios", "record"):
            sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("mask", "within", "after"),
    [
        ((1.0, 2.0), 1.0, 0.0),
        ((3.0, 5.0), 1.0, 1.0),
        ((5.0, 7.0), 0.0, 2.0),
        ((-1.0, 1.0), 1.0, 0.0),
        ((-1.0, 6.0), 4.0, 2.0),
    ],
)
def test_what_of_a_filling_is_hidden_and_what_is_exposed(
    overlap: Any, mask: tuple[float, float], within: float, after: float
) -> None:
    forward = overlap.Span(0.0, 4.0)
    span = overlap.Span(*mask)
    assert (span.within(forward), span.after(forward)) == (within, after)


def timeline(overlap: Any, masks: list[tuple[float, float]]) -> Any:
    """Forward passes of four seconds every ten, the first of a prompt, and masks in each but it."""
    found = overlap.Timeline()
    found.forwards = [overlap.Span(10.0 * step, 10.0 * step + 4) for step in range(len(masks) + 1)]
    found.masks = [
        (step, overlap.Span(10 * step + began, 10 * step + ended))
        for step, (began, ended) in enumerate(masks, start=1)
    ]
    kinds = ["prefill"] + ["decode"] * len(masks)
    found.facts = [SimpleNamespace(kind=one, decode_rows=2, elapsed_s=10.0) for one in kinds]
    return found


def test_masks_belong_to_the_forward_pass_of_their_step(overlap: Any) -> None:
    turn = overlap.read(timeline(overlap, [(1.0, 2.0), (1.0, 3.0), (3.0, 5.0)]), batch=2)
    assert (turn.step, turn.forward, turn.mask) == (10_000, 4_000, 2_000)
    assert turn.room == 1_000  # of 2, 1 and -1 seconds
    assert turn.exposed == pytest.approx(1_000 / 3)
    assert turn.hidden == pytest.approx(4 / 5)


def test_without_masks_there_is_nothing_to_hide(overlap: Any) -> None:
    found = timeline(overlap, [(1.0, 2.0)] * 3)
    found.masks = []
    assert overlap.read(found, batch=2) == overlap.Turn(10_000, 4_000)


def test_how_much_longer_steps_take_is_compared_by_round(overlap: Any) -> None:
    """Whatever the rounds themselves take: each of these is twice as long as the one before."""
    known = [overlap.Turn(2.0**number, 1.0) for number in range(10)]
    held = [one._replace(step=1.25 * one.step, exposed=0.5) for one in known]
    more, less = overlap.figures_of("way", 2, {"held": held, "known": known}, others=0.1)
    assert (more["ratio"], more["between"]) == (1.25, [1.25, 1.25])
    assert more["forward"] == {"ratio": 1.0, "between": [1.0, 1.0]}
    assert (more["exposed_ms"], more["others"]) == (0.5, 0.1)
    assert less["value"] == more["peer"]["value"] == 24.0
