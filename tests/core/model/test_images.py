"""Do rows of an image span enter the text model as they should?"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from deepinfer_core.cache.storage import Caches
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.model.evaluate import fresh_caches, text_step
from deepinfer_core.model.step import StepInputs
from deepinfer_core.testing.tiny import golden_tokens, golden_weights
from deepinfer_core.testing.tiny_model import tiny_model

SPAN = range(10, 22)
TOKENS = golden_tokens(40)


def image_step(
    model: TextModel, start: int, stop: int, caches: Caches, tokens: list[int] = TOKENS
) -> StepInputs:
    """Feed part of a text whose tokens in ``SPAN`` are an image."""
    step = text_step(tokens, start, stop, caches)
    generator = torch.Generator().manual_seed(1)
    width = model.config.text_config.hidden_size
    rows_TD = torch.randn(len(tokens), width, generator=generator)
    image = torch.tensor([False] * 3 + [position in SPAN for position in range(len(tokens))])
    place_T3 = step.position_T[:, None] + torch.tensor([2, 1, 0])
    return replace(
        step,
        image_T=image[3:][start:stop],
        image_previous_T3=image[place_T3],
        embedding_TD=rows_TD[start:stop],
    )


def run(
    model: TextModel, ends: list[int], tokens: list[int] = TOKENS
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    caches = fresh_caches(model, len(tokens))
    values: dict[str, torch.Tensor] = {}

    def keep(name: str, value: torch.Tensor) -> None:
        values[name] = value.clone()

    logits = [
        model.forward(image_step(model, start, end, caches, tokens), caches, probe=keep)
        for start, end in zip([0, *ends[:-1]], ends, strict=True)
    ]
    return torch.cat(logits), values


@pytest.mark.parametrize("ends", [[5, 15, 40], [22, *range(23, 41)], [10, 14, 18, 22, 40]])
def test_an_image_gives_the_same_bits_in_every_chunk(model: TextModel, ends: list[int]) -> None:
    assert torch.equal(run(model, ends)[0], run(model, [40])[0])


def test_the_ids_of_image_rows_do_not_matter(model: TextModel) -> None:
    other = [4096 + 2 if position in SPAN else token for position, token in enumerate(TOKENS)]
    assert torch.equal(run(model, [40], other)[0], run(model, [40])[0])


def test_image_rows_enter_with_their_own_embedding(model: TextModel) -> None:
    _, values = run(model, [40])
    caches = fresh_caches(model, 40)
    step = image_step(model, 0, 40, caches)
    trunk_TSD = values["layers.0.trunk"]
    assert step.embedding_TD is not None
    # Layer 0 has a memory, which leaves image rows as they are.
    for position in SPAN:
        expected_D = step.embedding_TD[position].to(trunk_TSD.dtype)
        assert torch.equal(trunk_TSD[position], expected_D.expand(4, -1))


def test_the_memory_does_not_look_back_into_an_image(model: TextModel) -> None:
    text = text_step(TOKENS, 22, 26, fresh_caches(model, 40))
    alone = replace(text, previous_T3=torch.full_like(text.previous_T3, -1))
    # The row behind the image sees nothing, the next one sees one token, and so on.
    for row in range(1, 4):
        alone.previous_T3[row, :row] = text.previous_T3[row, :row]
    values: dict[str, torch.Tensor] = {}
    model.forward(alone, fresh_caches(model, 40), probe=values.setdefault)  # type: ignore[arg-type]
    _, with_image = run(model, [40])
    rows = with_image["layers.0.engram.rows"]
    assert torch.equal(rows[22:26], values["layers.0.engram.rows"])


def test_image_rows_choose_experts_by_their_own_bias(short_config: ModelConfig) -> None:
    weights = golden_weights(short_config)
    numerics = Numerics(compute="float32", activation_quantisation=False, cache_quantisation=False)
    usual = run(tiny_model(numerics, config=short_config, weights=weights), [40])[1]
    drawn = dict(weights)
    drawn["layers.0.ffn.gate.bias_vl"] = torch.tensor([0.0, 0, 0, 0, 0, 100, 100, 0])
    biased = run(tiny_model(numerics, config=short_config, weights=drawn), [40])[1]
    experts = biased["layers.0.experts"]
    assert set(experts[SPAN.start : SPAN.stop].flatten().tolist()) == {5, 6}
    text = [position for position in range(40) if position not in SPAN]
    assert torch.equal(experts[text][:10], usual["layers.0.experts"][text][:10])


def test_an_override_without_image_rows_changes_nothing(
    short_model: Callable[[Numerics], TextModel],
) -> None:
    model = short_model(Numerics())
    caches = fresh_caches(model, 8)
    step = text_step(TOKENS, 0, 8, caches)
    expected_TV = model.forward(step, caches)
    width = model.config.text_config.hidden_size
    ignored = replace(step, embedding_TD=torch.full((8, width), torch.nan))
    assert torch.equal(model.forward(ignored, fresh_caches(model, 8)), expected_TV)
