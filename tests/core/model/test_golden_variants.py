"""Does the model give the known outputs in cases that the plain text does not reach?

Expected values come from two independent implementations; see ``test_golden`` for the tolerances.
"""

from collections.abc import Callable

import pytest
import torch
from deepinfer_core.cache.storage import Caches
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.evaluate import fresh_caches, score_logits, text_step
from deepinfer_core.testing.tiny import golden_tokens, tiny_test_config

Build = Callable[..., TextModel]
Run = tuple[TextModel, Caches, torch.Tensor]

TOLERANCE = 1e-4
FP64_TOLERANCE = 1e-3
"""With quantised caches in fp64, one unit in the last place of a cosine moves a rounded key by an
eighth; implementations with equal frequencies still agree to 2e-5 here, and 1e-3 is far below the
0.01 and more that a real mistake costs."""


def near(found: torch.Tensor, expected: str, tolerance: float = TOLERANCE) -> bool:
    return found.tolist() == pytest.approx([float(x) for x in expected.split()], abs=tolerance)


def drafts(model: TextModel, caches: Caches) -> tuple[list[int], torch.Tensor]:
    drafted, confidences = model.draft(
        torch.tensor([2385]), torch.tensor([95]), torch.tensor([1]), caches
    )
    return drafted[0].tolist(), confidences[0]


def test_gates_and_ups_are_clamped(golden_model: Build) -> None:
    model = golden_model(
        "float32", cache_quantisation=False, config=tiny_test_config(swiglu_limit=0.5)
    )
    caches = fresh_caches(model, 96)
    logits_TV = model.forward(text_step(golden_tokens(), 0, 96, caches), caches)
    assert near(logits_TV[0, :6], "0.8470 1.3755 1.4709 1.2125 -1.0549 0.5736")
    assert near(logits_TV[95, :6], "-0.1731 1.5673 -0.0418 1.1728 0.9971 -0.3032")
    assert logits_TV[[0, 95]].argmax(-1).tolist() == [2496, 3183]
    drafted, confidences = drafts(model, caches)
    assert drafted == [3318, 212, 3412, 212, 3412]
    assert near(confidences, "0.138031 0.052933 0.074041 0.067323 0.064965")


def test_the_engram_does_not_stop_at_a_start_or_end_token(golden_model: Build) -> None:
    model = golden_model("float32", cache_quantisation=False)
    tokens = golden_tokens()
    tokens[0], tokens[50], tokens[70] = 0, 0, 1
    values: dict[str, torch.Tensor] = {}
    logits_TV = score_logits(model, tokens, probe=values.setdefault)  # type: ignore[arg-type]
    expected = {
        0: ("0.6232 1.0480 0.6803 0.6585 1.8266 -0.6175", 1580),
        1: ("-0.8318 -1.6884 -0.1966 -0.1256 0.9428 0.0823", 2976),
        51: ("1.1852 1.1206 -0.2994 3.0987 -0.7410 1.1632", 442),
        95: ("0.8894 1.8432 -1.7958 0.7979 1.5958 0.0544", 2385),
    }
    for row, (logits, argmax) in expected.items():
        assert near(logits_TV[row, :6], logits)
        assert logits_TV[row].argmax() == argmax
    rows = values["layers.1.engram.rows"]
    assert rows[1].tolist() == [211, 326, 726, 792, 1226, 1583]
    assert rows[51].tolist() == [38, 377, 780, 927, 1096, 1547]
    assert rows[52].tolist() == [201, 337, 657, 958, 1118, 1337]


def test_the_first_rows_are_known_with_quantised_caches(golden_model: Build) -> None:
    # Later rows depend on roundings that fp32 sums in another order may tip.
    logits_TV = score_logits(golden_model("float32", cache_quantisation=True), golden_tokens()[:6])
    expected = {
        0: ("-1.1328 0.1471 0.2900 0.8929 -0.3169 0.2692", 3259),
        1: ("-1.0772 -0.6260 -0.0888 1.3813 1.4576 -0.0568", 461),
        5: ("0.2025 0.2306 0.0618 2.6192 0.5380 2.3362", 1799),
    }
    for row, (logits, argmax) in expected.items():
        assert near(logits_TV[row, :6], logits)
        assert logits_TV[row].argmax() == argmax


@pytest.fixture(scope="module")
def wide_run(golden_model: Build) -> Run:
    model = golden_model("float64", cache_quantisation=True)
    caches = fresh_caches(model, 96)
    logits_TV = model.forward(text_step(golden_tokens(), 0, 96, caches), caches)
    return model, caches, logits_TV


def test_all_rows_are_known_with_quantised_caches_in_fp64(wide_run: Run) -> None:
    _, _, logits_TV = wide_run
    expected = {
        6: ("1.3269 0.1939 -1.3236 0.4009 -0.4022 0.5571", 842),
        40: ("-1.5335 0.2610 0.8640 1.2094 -1.9449 1.9172", 3074),
        95: ("0.5481 1.2667 -1.3527 -0.0909 1.4398 -0.1989", 2385),
    }
    for row, (logits, argmax) in expected.items():
        assert near(logits_TV[row, :6], logits, FP64_TOLERANCE)
        assert logits_TV[row].argmax() == argmax
    known = [420, 1158, 2789, 2867, 1448, 2525, 2552, 2385]
    assert logits_TV[88:].argmax(-1).tolist() == known


def test_drafts_are_known_with_quantised_caches_in_fp64(wide_run: Run) -> None:
    model, caches, _ = wide_run
    drafted, confidences = drafts(model, caches)
    assert drafted == [7, 1388, 18, 608, 1586]
    assert near(confidences, "0.416118 0.839882 0.656601 0.398495 0.301030", FP64_TOLERANCE)


@pytest.mark.parametrize(
    ("region", "row", "first", "last"),
    [
        ("window 0", 22 + 95 % 22, "1.875 -0.1015625 -1.375 -0.00341796875", None),
        ("entries 2", 64 + 5, "-0.3125 0.625 0.625 1.875", "0.9375 0 -0.9375 0.625"),
        ("entries 6", 128 + 90, "0.46875 -0.625 -0.9375 -1.25", None),
        ("index_keys 6", 128 + 90, "0 -2 -2 0.75", None),
    ],
)
def test_caches_hold_the_known_quantised_values_in_fp64(
    wide_run: Run, region: str, row: int, first: str, last: str | None
) -> None:
    model, caches, _ = wide_run
    kind, layer = region.split()
    pages = getattr(caches, kind)(int(layer))
    row_1D = torch.empty(1, pages.width, dtype=torch.float64)
    model.parts.codec.load(pages, torch.tensor([row]), row_1D)
    assert near(row_1D[0, :4], first, 0)
    if last is not None:
        assert near(row_1D[0, -4:], last, 0)
