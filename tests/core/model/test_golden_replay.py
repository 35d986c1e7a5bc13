"""Does bounded replay give the known outputs?

Expected values come from two independent implementations; see ``test_golden`` for the tolerance,
and ``test_golden_variants`` for that of quantised caches.
"""

from collections.abc import Callable
from typing import Literal

import pytest
import torch
from deepinfer_core.cache.replay import DecoderTruncation
from deepinfer_core.cache.storage import Caches
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.evaluate import fresh_caches, text_step
from deepinfer_core.testing.steps import feed_prompt
from deepinfer_core.testing.tiny import golden_tokens

Mode = Literal["mask", "compact"]

TOLERANCE = 1e-4
FP64_TOLERANCE = 1e-3
TOKENS = golden_tokens()
CACHED, START = 48, 32


@pytest.fixture(scope="module")
def model(golden_model: Callable[..., TextModel]) -> TextModel:
    return golden_model("float32", cache_quantisation=False)


def near(found: torch.Tensor, expected: str, tolerance: float = TOLERANCE) -> bool:
    return found.tolist() == pytest.approx([float(x) for x in expected.split()], abs=tolerance)


def drafts(model: TextModel, caches: Caches, first: int = 0) -> tuple[list[int], torch.Tensor]:
    drafted, confidences = model.draft(
        torch.tensor([2385]),
        torch.tensor([95]),
        torch.tensor([1]),
        caches,
        first_position_Q=torch.tensor([first]),
    )
    return drafted[0].tolist(), confidences[0]


def with_cached_entries(model: TextModel) -> Caches:
    """Entries of the prefix as an exact run leaves them, and window keys that are not numbers."""
    caches = fresh_caches(model, 96)
    model.forward(text_step(TOKENS, 0, CACHED, caches), caches)
    caches.states_PB.fill_(0xFF)
    return caches


@pytest.mark.parametrize("ends", [[96], [50, 96], [30, 75, 80, 96]])
@pytest.mark.parametrize("mode", ["mask", "compact"])
def test_a_truncated_decoder_half_gives_the_known_outputs(
    model: TextModel, mode: Mode, ends: list[int]
) -> None:
    caches = fresh_caches(model, 96)
    truncation = DecoderTruncation(mode=mode, keep_tokens=24)
    logits_RV = feed_prompt(model, TOKENS, ends, caches, truncation=truncation)
    assert near(logits_RV[-1, :6], "1.1766 1.8770 -1.4879 0.2096 1.6342 0.1630")
    known = [1693, 3030, 448, 2970, 3642, 2525, 2375, 2385]
    assert logits_RV[-8:].argmax(-1).tolist() == known
    drafted, confidences = drafts(model, caches)
    assert drafted == [183, 2844, 2844, 2844, 2844]
    assert near(confidences, "0.119896 0.978991 0.978079 0.991589 0.989906")


@pytest.mark.parametrize("ends", [[96], [48, 96], [41, 47, 53, 96]])
def test_replaying_a_window_of_cached_tokens_gives_the_known_outputs(
    model: TextModel, ends: list[int]
) -> None:
    caches = with_cached_entries(model)
    logits_RV = feed_prompt(model, TOKENS, ends, caches, start=START, cached_end=CACHED)
    expected = {
        48: ("-0.2694 -0.1174 1.0893 0.0644 -0.2508 0.0295", 3709),
        60: ("-1.2280 0.3579 0.3138 0.9241 0.8405 1.4499", 625),
        95: ("1.0594 1.2061 -1.6912 -0.2015 1.5892 0.0538", 2385),
    }
    for row, (logits, argmax) in expected.items():
        assert near(logits_RV[row - CACHED, :6], logits)
        assert logits_RV[row - CACHED].argmax() == argmax
    known = [1693, 384, 2789, 2970, 3642, 2525, 2375, 2385]
    assert logits_RV[-8:].argmax(-1).tolist() == known


@pytest.mark.parametrize(
    ("keep", "logits", "drafted", "confidences"),
    [
        (
            24,
            "1.0473 1.2067 -1.6938 -0.1990 1.5924 0.0543",
            [183, 2844, 2844, 2844, 2844],
            "0.127555 0.958207 0.951176 0.981164 0.953704",
        ),
        (  # begins in the middle of the replayed tokens
            56,
            "1.0595 1.2061 -1.6912 -0.2015 1.5892 0.0538",
            [183, 2844, 636, 3247, 2023],
            "0.125859 0.916353 0.908501 0.966185 0.941706",
        ),
    ],
)
@pytest.mark.parametrize("ends", [[96], [45, 70, 96]])
@pytest.mark.parametrize("mode", ["mask", "compact"])
def test_both_replays_together_give_the_known_outputs(
    model: TextModel,
    mode: Mode,
    ends: list[int],
    keep: int,
    logits: str,
    drafted: list[int],
    confidences: str,
) -> None:
    caches = with_cached_entries(model)
    logits_RV = feed_prompt(
        model,
        TOKENS,
        ends,
        caches,
        start=START,
        cached_end=CACHED,
        truncation=DecoderTruncation(mode=mode, keep_tokens=keep),
    )
    assert near(logits_RV[-1, :6], logits)
    found_drafts, found_confidences = drafts(model, caches, START)
    assert found_drafts == drafted
    assert near(found_confidences, confidences)


@pytest.mark.parametrize("mode", ["mask", "compact"])
def test_a_truncated_decoder_half_is_known_with_quantised_caches_in_fp64(
    golden_model: Callable[..., TextModel], mode: Mode
) -> None:
    model = golden_model("float64", cache_quantisation=True)
    caches = fresh_caches(model, 96)
    truncation = DecoderTruncation(mode=mode, keep_tokens=24)
    logits_RV = feed_prompt(model, TOKENS, [96], caches, truncation=truncation)
    known = "0.5275 1.2670 -1.3608 -0.0721 1.4321 -0.1552"
    assert near(logits_RV[-1, :6], known, FP64_TOLERANCE)
