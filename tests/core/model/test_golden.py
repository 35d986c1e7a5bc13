"""Does the model give the known outputs when nothing is rounded?

The expected values were computed by independent implementations and agree among them to 2e-5. They
are printed with four decimals, so 1e-4 covers printing (5e-5) and fp32 sums in another order.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from deepinfer_core.cache.storage import Caches
from deepinfer_core.interfaces.attention import CachePages
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.evaluate import fresh_caches, text_step
from deepinfer_core.testing.tiny import golden_tokens

TOLERANCE = 1e-4
LAST = 95


@dataclass(frozen=True, kw_only=True)
class Run:
    """The golden text in one step."""

    model: TextModel
    caches: Caches
    logits_TV: torch.Tensor
    values: dict[str, torch.Tensor]

    def cached(self, pages: CachePages, slot: int) -> torch.Tensor:
        row_1D = torch.empty(1, pages.width)
        self.model.parts.codec.load(pages, torch.tensor([slot]), row_1D)
        return row_1D[0]


@pytest.fixture(scope="module")
def run(golden_model: Callable[..., TextModel]) -> Run:
    model = golden_model("float32", cache_quantisation=False)
    caches = fresh_caches(model, 96)
    values: dict[str, torch.Tensor] = {}

    def keep(name: str, value: torch.Tensor) -> None:
        values[name] = value.clone()

    logits_TV = model.forward(text_step(golden_tokens(), 0, 96, caches), caches, probe=keep)
    return Run(model=model, caches=caches, logits_TV=logits_TV, values=values)


def near(found: torch.Tensor, expected: str | list[float]) -> bool:
    numbers = [float(x) for x in expected.split()] if isinstance(expected, str) else expected
    return found.tolist() == pytest.approx(numbers, abs=TOLERANCE)


@pytest.mark.parametrize(
    ("row", "logits", "argmax"),
    [
        (0, "-1.0774 0.4482 0.0856 0.7319 -0.4600 0.2529 -0.4221 -2.6166", 3259),
        (1, "-0.9890 -0.6156 -0.0993 1.4045 1.3864 -0.0460 -2.5685 0.0507", 1443),
        (40, "-1.4846 0.0603 0.9711 1.1953 -1.7516 2.0830 0.8112 -0.2446", 3074),
        (95, "1.1587 1.8576 -1.4980 0.1861 1.6465 0.1286 0.0938 0.5204", 2385),
    ],
)
def test_logits_are_known(run: Run, row: int, logits: str, argmax: int) -> None:
    assert near(run.logits_TV[row, :8], logits)
    assert run.logits_TV[row].argmax() == argmax


def test_the_last_rows_prefer_the_known_tokens(run: Run) -> None:
    known = [1693, 3030, 860, 2970, 3642, 2525, 2375, 2385]
    assert run.logits_TV[88:].argmax(-1).tolist() == known
    assert run.logits_TV[LAST].max().item() == pytest.approx(3.6947, abs=TOLERANCE)
    assert run.logits_TV.std().item() == pytest.approx(1.0071, abs=TOLERANCE)


@pytest.mark.parametrize(
    ("layer", "rms"),
    [
        (0, "0.5195 0.5195 0.5195 0.5195"),
        (1, "0.8831 1.5752 1.1677 1.1892"),
        (2, "1.6541 1.9003 1.4151 1.7238"),
        (6, "2.5363 2.5352 2.8621 2.4784"),
        (11, "3.4197 3.5497 3.7796 3.2730"),
    ],
)
def test_the_trunk_has_the_known_size_at_the_entry_of_a_layer(
    run: Run, layer: int, rms: str
) -> None:
    trunk_SD = run.values[f"layers.{layer}.trunk"][LAST]
    assert near(trunk_SD.square().mean(-1).sqrt(), rms)


def test_the_mixes_of_an_attention_are_known(run: Run) -> None:
    assert near(run.values["layers.3.attn.pre"][LAST], "0.2323 0.6937 0.4178 0.6130")
    assert near(run.values["layers.3.attn.post"][LAST], "1.1926 1.9308 0.2571 0.9296")
    comb = (
        "0.0990 0.2588 0.4544 0.1878 0.5991 0.1438 0.2405 0.0166 "
        "0.1785 0.3190 0.1631 0.3394 0.1234 0.2785 0.1420 0.4561"
    )
    assert near(run.values["layers.3.attn.comb"][LAST].flatten(), comb)


@pytest.mark.parametrize(
    ("layer", "experts", "weights"),
    [(0, [2, 0], "0.9107 0.5893"), (11, [0, 3], "0.8147 0.6853")],
)
def test_rows_take_the_known_experts(
    run: Run, layer: int, experts: list[int], weights: str
) -> None:
    assert run.values[f"layers.{layer}.experts"][LAST].tolist() == experts
    assert near(run.values[f"layers.{layer}.routing_weights"][LAST], weights)


def test_the_window_key_is_known(run: Run) -> None:
    ring = run.caches.layout.state.ring_tokens
    key_W = run.cached(run.caches.window(0), ring + LAST % ring)
    assert near(key_W[:4], "1.8445 -0.1047 -1.4078 -0.0033")
    assert near(key_W[-4:], "0.2107 -0.0482 -0.7060 0.8419")


def test_compressed_entries_are_known(run: Run) -> None:
    pairs, singles = run.caches.entries(2), run.caches.entries(6)
    entry_W = run.cached(pairs, pairs.rows_per_page + 5)
    assert near(entry_W[:4], "-0.3071 0.6342 0.7190 2.0283")
    assert near(entry_W[-4:], "0.9561 0.0733 -0.8313 0.7165")
    entry_W = run.cached(singles, singles.rows_per_page + 90)
    assert near(entry_W[:4], "0.3131 -0.4359 -0.5578 -1.6858")
    assert near(run.cached(singles, singles.rows_per_page)[-4:], "-0.6406 -0.9277 -1.2782 -0.0852")


def test_the_index_key_is_known(run: Run) -> None:
    keys = run.caches.index_keys(6)
    assert near(run.cached(keys, keys.rows_per_page + 90)[:4], "-0.2107 -1.7935 -1.4793 1.5183")


@pytest.mark.parametrize(
    ("layer", "selected"),
    [
        (2, "1 2 7 8 9 10 11 14 17 21 27 28 34 38 40 46"),
        (4, "2 3 8 9 10 11 12 17 23 27 32 36 38 39 43 44"),
        (6, "1 3 5 11 17 24 25 35 51 53 56 70 71 84 88 92"),
        (8, "10 12 13 15 34 36 38 48 49 57 58 60 61 64 69 87"),
        (10, "2 5 8 33 51 65 66 68 69 84 86 88 89 92 93 95"),
    ],
)
def test_index_sources_select_the_known_entries(run: Run, layer: int, selected: str) -> None:
    found = run.values[f"layers.{layer}.index.selected"][LAST]
    assert found.tolist() == [int(entry) for entry in selected.split()]


def test_the_candidate_pool_keeps_the_known_blocks(run: Run) -> None:
    score_S = run.values["layers.8.index.restricted"][LAST]
    kept = torch.where(score_S > -torch.inf)[0] // 8
    assert sorted(set(kept.tolist())) == [0, 1, 4, 6, 7, 8, 10, 11]


def test_engram_reads_the_known_rows(run: Run) -> None:
    rows = run.values["layers.1.engram.rows"]
    assert rows[0].tolist() == [232, 511, 624, 836, 1079, 1451]
    assert rows[LAST].tolist() == [252, 482, 709, 867, 1160, 1378]
    assert run.values["layers.4.engram.rows"][LAST].tolist() == [71, 433, 699, 1035, 1341, 1549]


def test_the_drafter_s_key_is_known(run: Run) -> None:
    assert near(run.values["mtp.0.key"][LAST, :4], "1.3575 -0.1093 -1.9952 0.3228")


def test_drafts_and_their_confidences_are_known(run: Run) -> None:
    tokens, confidences = run.model.draft(
        torch.tensor([2385]), torch.tensor([LAST]), torch.tensor([1]), run.caches
    )
    assert tokens.tolist() == [[183, 2844, 2844, 2844, 2844]]
    assert near(confidences[0], "0.063527 0.963342 0.958861 0.981751 0.977626")
