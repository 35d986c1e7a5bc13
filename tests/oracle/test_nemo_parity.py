"""Do NeMo and we give the same values for the small model, and are they the known ones?"""

import dataclasses

import pytest
import torch
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.evaluate import fresh_caches, score_logits, text_step
from deepinfer_core.model.image_geometry import TokenType, image_geometry, span_types
from deepinfer_core.model.vision import align, encode_image, run_tower
from deepinfer_core.model.vision_weights import load_vision_weights
from deepinfer_core.testing.tiny import (
    golden_tokens,
    golden_vision_weights,
    golden_weights,
    tiny_test_config,
)
from deepinfer_core.testing.tiny_model import PlainWeights, tiny_model

# Known values are printed with four decimals: half a unit, plus fp32 noise of 1.2e-5.
PRINTED = 6.5e-5
# fp32 on both sides, sums in other orders: 1.2e-5 measured on logits of deviation 1.
TOLERANCE = 2e-5
EXACT = Numerics(compute="float32", activation_quantisation=False, cache_quantisation=False)
QUANTISED = dataclasses.replace(EXACT, cache_quantisation=True)
THEIR_TYPES = {
    TokenType.START: 0,
    TokenType.IMAGE: 1,
    TokenType.NEWLINE: 2,
    TokenType.END: 3,
}


@pytest.fixture(scope="module")
def config():
    return tiny_test_config(quantised=False, vision=True)


@pytest.fixture(scope="module")
def weights(config):
    markers = torch.randn(3, 128, generator=torch.Generator().manual_seed(3)) / 2
    names = ("image_start", "image_newline", "image_end")
    text, vision = golden_weights(config), golden_vision_weights(config)
    return text | vision | dict(zip(names, markers, strict=True))


@pytest.fixture(scope="module")
def golden(nemo, config, weights):
    return nemo.build(config, weights)


@pytest.fixture(scope="module")
def tower(config, weights):
    source = PlainWeights(config=config, tensors=weights)
    return load_vision_weights(source, dtype=torch.float32, device=torch.device("cpu"))


@pytest.mark.parametrize(
    ("row", "expected", "best"),
    [
        (0, [-1.0774, 0.4482, 0.0856, 0.7319, -0.4600, 0.2529, -0.4221, -2.6166], 3259),
        (1, [-0.9890, -0.6156, -0.0993, 1.4045, 1.3864, -0.0460, -2.5685, 0.0507], 1443),
        (40, [-1.4846, 0.0603, 0.9711, 1.1953, -1.7516, 2.0830, 0.8112, -0.2446], 3074),
        (95, [1.1587, 1.8576, -1.4980, 0.1861, 1.6465, 0.1286, 0.0938, 0.5204], 2385),
    ],
)
def test_the_known_logits_are_nemos(nemo, golden, row, expected, best):
    with nemo.plain_caches():
        logits = golden.logits(golden_tokens())[row]
    torch.testing.assert_close(logits[:8], torch.tensor(expected), atol=PRINTED, rtol=0)
    assert int(logits.argmax()) == best


def test_the_known_drafts_are_nemos(nemo, golden):
    with nemo.plain_caches():
        drafts = golden.draft(golden_tokens(), 2385)
    assert drafts.tokens == [183, 2844, 2844, 2844, 2844]
    known = torch.tensor([0.063527, 0.963342, 0.958861, 0.981751, 0.977626])
    torch.testing.assert_close(drafts.confidence, known, atol=TOLERANCE, rtol=0)


def test_logits_agree_without_cache_quantisation(nemo, golden, config, weights):
    with nemo.plain_caches():
        theirs = golden.logits(golden_tokens())
    ours = score_logits(tiny_model(EXACT, config=config, weights=weights), golden_tokens())
    torch.testing.assert_close(ours, theirs, atol=TOLERANCE, rtol=0)


def test_first_logits_agree_with_quantised_caches(golden, config, weights):
    # Later rows are not compared: an fp32 difference that flips one four-bit rounding moves single
    # logits by up to 2. NeMo divides by FP4 scales where we multiply with their reciprocals.
    theirs = golden.logits(golden_tokens())[:6]
    ours = score_logits(tiny_model(QUANTISED, config=config, weights=weights), golden_tokens())
    torch.testing.assert_close(ours[:6], theirs, atol=1e-5, rtol=0)


def test_cache_quantisation_is_on_in_nemo_unless_it_is_replaced(nemo, golden):
    with nemo.plain_caches():
        plain = golden.logits(golden_tokens(6))
    assert float((golden.logits(golden_tokens(6)) - plain).abs().max()) > 0.01


def _noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 3), (4, 5), (7, 2)])
@torch.inference_mode()
def test_tower_and_aligner_agree(golden, tower, rows, columns):
    patch_NC = _noise(rows * columns, 588)
    theirs = golden.backbone.model.vision(patch_NC.view(-1, 3, 14, 14), rows, columns)
    ours = run_tower(tower, patch_NC, rows, columns)
    torch.testing.assert_close(ours, theirs, atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(
        align(tower, ours, rows, columns),
        golden.backbone.model.aligner(theirs, rows, columns),
        atol=TOLERANCE,
        rtol=0,
    )


def test_a_prompt_around_an_image_agrees(nemo, golden, config, weights, tower):
    geometry = image_geometry(100, 60, config.vision_config)
    patch_NC = _noise(geometry.patch_rows * geometry.patch_columns, 588)
    before, after = golden_tokens(30), golden_tokens(60)[30:]
    span = span_types(geometry)
    tokens = [*before, *[config.image_token_id] * len(span), *after]
    types = [-1] * len(before) + [THEIR_TYPES[kind] for kind in span] + [-1] * len(after)
    with nemo.plain_caches():
        theirs = golden.logits(
            tokens,
            pixel_values=patch_NC.view(-1, 3, 14, 14),
            image_grid_hws=torch.tensor([[geometry.patch_rows, geometry.patch_columns]]),
            vision_token_types=torch.tensor([types]),
        )
    image_T = torch.tensor(types) >= 0
    embedding_TD = torch.zeros(len(tokens), 128)
    embedding_TD[image_T] = encode_image(tower, patch_NC, geometry)
    model = tiny_model(EXACT, config=config, weights=weights)
    ours = _score_with_images(model, tokens, image_T, embedding_TD)
    torch.testing.assert_close(ours, theirs, atol=TOLERANCE, rtol=0)


def _score_with_images(model, tokens, image_T, embedding_TD):
    caches = fresh_caches(model, len(tokens))
    step = text_step(tokens, 0, len(tokens), caches)
    padded = torch.cat((torch.zeros(3, dtype=torch.bool), image_T))
    previous = torch.stack([padded[3 - d : len(padded) - d] for d in (1, 2, 3)], dim=1)
    step = dataclasses.replace(
        step, image_T=image_T, image_previous_T3=previous, embedding_TD=embedding_TD
    )
    return model.forward(step, caches)
