"""Which bits does a truncated decoder half leave as they are, and which rows is it spared?

A window of 16 keys and 6 rows of backtracking: at least 22 tokens are kept.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Literal

import pytest
import torch
from deepinfer_core.cache.replay import DecoderTruncation
from deepinfer_core.cache.storage import Caches
from deepinfer_core.interfaces.attention import CachePages
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.evaluate import fresh_caches, text_step
from deepinfer_core.model.step import StepInputs
from deepinfer_core.testing.steps import feed_prompt, replay_step
from deepinfer_core.testing.tiny import golden_tokens, tiny_test_config
from deepinfer_core.testing.tiny_model import tiny_model

Mode = Literal["mask", "compact"]
Outcome = tuple[torch.Tensor, Caches]

TEXT = golden_tokens(80)
TOKENS = TEXT[:60]
CHUNKS = ([60], [38, 60], [39, 60], [1, 7, 30, 60], [20, 26, 35, 41, 60])


def keep(tokens: int, mode: Mode = "mask") -> DecoderTruncation:
    return DecoderTruncation(mode=mode, keep_tokens=tokens)


def run(model: TextModel, ends: list[int], truncation: DecoderTruncation | None = None) -> Outcome:
    caches = fresh_caches(model, len(TEXT))
    return feed_prompt(model, TOKENS, ends, caches, truncation=truncation), caches


def encoder_regions(model: TextModel, caches: Caches) -> list[CachePages]:
    layers = model.layers[: model.config.boundary_layer]
    rings = [caches.window(layer.plan.index) for layer in layers]
    return [*rings, caches.compressor(1)]


def decoder_regions(model: TextModel, caches: Caches) -> list[CachePages]:
    layers = model.layers[model.config.boundary_layer :]
    rings = [caches.window(layer.plan.index) for layer in layers]
    return [*rings, *(caches.drafter(n) for n in range(len(model.config.drafter_layers)))]


def same_outcome(found: Outcome, expected: Outcome) -> bool:
    return (
        torch.equal(found[0], expected[0])
        and torch.equal(found[1].blocks_PB, expected[1].blocks_PB)
        and torch.equal(found[1].states_PB, expected[1].states_PB)
    )


@pytest.fixture(scope="session")
def exact(model: TextModel) -> Outcome:
    return run(model, [60])


@pytest.fixture(scope="session")
def masked(model: TextModel) -> Outcome:
    return run(model, [60], keep(22))


@pytest.mark.parametrize("tokens", [60, 61, 1000])
@pytest.mark.parametrize("mode", ["mask", "compact"])
def test_keeping_the_whole_prompt_changes_no_bit(
    model: TextModel, exact: Outcome, mode: Mode, tokens: int
) -> None:
    assert same_outcome(run(model, [60], keep(tokens, mode)), exact)
    assert same_outcome(run(model, [25, 60], keep(tokens, mode)), exact)


def test_keeping_one_token_less_hides_the_first_key(model: TextModel, exact: Outcome) -> None:
    logits_RV, _ = run(model, [60], keep(59))
    assert logits_RV.shape[0] == 59
    assert not torch.equal(logits_RV[0], exact[0][1])


@pytest.mark.parametrize("ends", CHUNKS, ids=str)
@pytest.mark.parametrize("mode", ["mask", "compact"])
def test_masked_and_compacted_chunks_of_every_size_give_the_bits_of_one_masked_step(
    model: TextModel, exact: Outcome, masked: Outcome, mode: Mode, ends: list[int]
) -> None:
    assert same_outcome(run(model, ends, keep(22, mode)), masked)
    assert not torch.equal(masked[0][-1], exact[0][-1])


def test_a_truncated_decoder_half_leaves_exact_blocks_and_encoder_states(
    model: TextModel, exact: Outcome, masked: Outcome
) -> None:
    # The test above extends this to both modes and all chunks.
    assert torch.equal(masked[1].blocks_PB, exact[1].blocks_PB)
    for found, expected in zip(
        encoder_regions(model, masked[1]), encoder_regions(model, exact[1]), strict=True
    ):
        assert torch.equal(found.data_PB, expected.data_PB)
    for found, expected in zip(
        decoder_regions(model, masked[1])[1:], decoder_regions(model, exact[1])[1:], strict=True
    ):
        assert not torch.equal(found.data_PB, expected.data_PB)


@pytest.mark.parametrize("tokens", [22, 23, 38, 59])
def test_mask_and_compact_agree_whatever_is_kept(model: TextModel, tokens: int) -> None:
    expected = run(model, [60], keep(tokens))
    assert same_outcome(run(model, [21, 44, 60], keep(tokens, "compact")), expected)


@pytest.mark.parametrize("mode", ["mask", "compact"])
def test_rows_in_front_of_the_kept_ones_leave_no_keys_behind(model: TextModel, mode: Mode) -> None:
    caches = fresh_caches(model, 60)
    caches.states_PB.fill_(0xFF)
    for start, stop in ((0, 30), (30, 32), (32, 38)):
        step = replay_step(TOKENS, start, stop, caches, truncation=keep(22, mode))
        assert model.forward(step, caches).shape[0] == 0
    assert all(bool((ring.data_PB == 0xFF).all()) for ring in decoder_regions(model, caches))
    model.forward(replay_step(TOKENS, 38, 39, caches, truncation=keep(22, mode)), caches)
    assert all(bool((ring.data_PB != 0xFF).any()) for ring in decoder_regions(model, caches))


def test_only_kept_rows_and_a_placeholder_pass_the_decoder_half(model: TextModel) -> None:
    rows: dict[str, list[int]] = {}

    def count(name: str, value: torch.Tensor) -> None:
        rows.setdefault(name, []).append(value.shape[0])

    caches = fresh_caches(model, 60)
    feed_prompt(model, TOKENS, [30, 60], caches, truncation=keep(22, "compact"), probe=count)
    assert rows["layers.2.trunk"] == [30, 30]
    assert rows["layers.3.trunk"] == rows["layers.5.trunk"] == rows["mtp.0.key"] == [1, 22]


@pytest.mark.parametrize("mode", ["mask", "compact"])
def test_decoding_and_verification_behind_a_truncated_prompt_never_miss_a_key(
    model: TextModel, mode: Mode
) -> None:
    # One step over the whole text with the same first kept position, 38 = 60 - 22 = 80 - 42.
    caches = fresh_caches(model, len(TEXT))
    expected_RV = feed_prompt(model, TEXT, [80], caches, truncation=keep(42))
    logits_RV, caches = run(model, [45, 60], keep(22, mode))
    logits = [logits_RV]
    for start, stop in ((60, 61), (61, 62), (62, 63), (63, 69), (69, 75), (75, 80)):
        rejected = [*TEXT[:start], *([5] * 6)]
        model.forward(text_step(rejected, start, start + 6, caches), caches)
        logits.append(model.forward(text_step(TEXT, start, stop, caches), caches))
    assert torch.equal(torch.cat(logits), expected_RV)


def test_drafts_behind_a_truncated_prompt_are_the_same_in_both_modes(model: TextModel) -> None:
    anchor, last, slot = torch.tensor([7]), torch.tensor([59]), torch.tensor([1])
    confidences = [
        model.draft(anchor, last, slot, run(model, ends, truncation)[1])[1]
        for ends, truncation in (
            ([60], keep(22)),
            ([33, 60], keep(22, "compact")),
            ([60], None),
        )
    ]
    assert torch.equal(confidences[0], confidences[1])
    assert not torch.equal(confidences[0], confidences[2])


@pytest.mark.parametrize("mode", ["mask", "compact"])
def test_image_rows_stay_image_rows_behind_the_kept_position(model: TextModel, mode: Mode) -> None:
    def step_of(truncation: DecoderTruncation, start: int, stop: int, caches: Caches) -> StepInputs:
        step = replay_step(TOKENS, start, stop, caches, truncation=truncation)
        image_T = (step.position_T >= 33) & (step.position_T < 45)
        rows_TD = torch.sin(step.position_T[:, None] * 0.1 + torch.arange(128)).to(torch.float32)
        back_T3 = step.position_T[:, None] - torch.tensor([1, 2, 3])
        return replace(
            step,
            image_T=image_T,
            image_previous_T3=(back_T3 >= 33) & (back_T3 < 45),
            embedding_TD=rows_TD.to(model.rows.compute),
        )

    one = fresh_caches(model, 60)
    expected_RV = model.forward(step_of(keep(22), 0, 60, one), one)
    caches = fresh_caches(model, 60)
    logits = [
        model.forward(step_of(keep(22, mode), start, stop, caches), caches)
        for start, stop in pairwise((0, 36, 60))
    ]
    assert torch.equal(torch.cat(logits), expected_RV)
    assert not torch.equal(expected_RV, run(model, [60], keep(22))[0])


def test_a_drafter_that_listens_to_the_encoder_half_hears_the_same_rows() -> None:
    config = tiny_test_config(dspark_target_layer_ids=[3, 4, 5])
    model = tiny_model(Numerics(), config=config)
    assert same_outcome(run(model, [30, 60], keep(22, "compact")), run(model, [60], keep(22)))
