"""Does the drafter draft for each sequence on its own, from the keys that exist?"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from deepinfer_core.cache.storage import Caches
from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.evaluate import fresh_caches, text_step
from deepinfer_core.testing.tiny import golden_tokens

TOKENS = golden_tokens(50)
ANCHOR = torch.tensor([7])
SLOT = torch.tensor([1])


@pytest.fixture
def caches(model: TextModel) -> Caches:
    caches = fresh_caches(model, len(TOKENS))
    model.forward(text_step(TOKENS, 0, 40, caches), caches)
    return caches


def at(position: int) -> torch.Tensor:
    return torch.tensor([position])


def test_two_sequences_draft_what_each_drafts_alone(model: TextModel, caches: Caches) -> None:
    caches.states_PB[0] = caches.states_PB[1]
    early = model.draft(ANCHOR, at(30), SLOT, caches)
    late = model.draft(torch.tensor([9]), at(39), torch.tensor([0]), caches)
    both = model.draft(torch.tensor([9, 7]), torch.tensor([39, 30]), torch.tensor([0, 1]), caches)
    for found, alone in ((0, late), (1, early)):
        assert torch.equal(both[0][found], alone[0][0])
        assert torch.equal(both[1][found], alone[1][0])


def test_drafting_twice_gives_the_same_bits(model: TextModel, caches: Caches) -> None:
    once = model.draft(ANCHOR, at(39), SLOT, caches)
    again = model.draft(ANCHOR, at(39), SLOT, caches)
    assert torch.equal(once[0], again[0])
    assert torch.equal(once[1], again[1])


def test_drafts_do_not_depend_on_how_the_context_was_cut(model: TextModel, caches: Caches) -> None:
    decoded = fresh_caches(model, len(TOKENS))
    for start, stop in ((0, 17), *((p, p + 1) for p in range(17, 40))):
        model.forward(text_step(TOKENS, start, stop, decoded), decoded)
    for found, expected in zip(
        model.draft(ANCHOR, at(39), SLOT, decoded),
        model.draft(ANCHOR, at(39), SLOT, caches),
        strict=True,
    ):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("count", range(1, 6))
def test_as_many_drafts_come_as_are_asked_for(model: TextModel, caches: Caches, count: int) -> None:
    tokens, confidences = model.draft(ANCHOR, at(39), SLOT, caches, count=count)
    assert tokens.shape == confidences.shape == (1, count)
    assert tokens.dtype == torch.int64
    assert bool(((confidences > 0) & (confidences < 1)).all())


@pytest.mark.parametrize("count", [0, 6])
def test_other_numbers_of_drafts_are_refused(model: TextModel, caches: Caches, count: int) -> None:
    with pytest.raises(NotSupported, match=f"asked for {count} drafts"):
        model.draft(ANCHOR, at(39), SLOT, caches, count=count)


def test_a_model_without_a_drafter_refuses_to_draft(model: TextModel, caches: Caches) -> None:
    with pytest.raises(NotSupported, match="without a drafter"):
        replace(model, drafter=None).draft(ANCHOR, at(39), SLOT, caches)


def test_a_draft_follows_the_token_that_was_chosen_before_it(
    model: TextModel, caches: Caches
) -> None:
    asked: list[int] = []

    def second_best(logits_QV: torch.Tensor, number: int) -> torch.Tensor:
        asked.append(number)
        return logits_QV.topk(2).indices[:, 1] if number == 0 else logits_QV.argmax(-1)

    usual_tokens, usual_confidences = model.draft(ANCHOR, at(39), SLOT, caches)
    tokens, confidences = model.draft(ANCHOR, at(39), SLOT, caches, choose=second_best)
    assert asked == [0, 1, 2, 3, 4]
    assert tokens[0, 0] != usual_tokens[0, 0]
    assert confidences[0, 0] == usual_confidences[0, 0]
    assert confidences[0, 1] != usual_confidences[0, 1]


def test_keys_before_the_first_position_are_not_seen(model: TextModel, caches: Caches) -> None:
    usual = model.draft(ANCHOR, at(39), SLOT, caches)[1]
    everything = model.draft(ANCHOR, at(39), SLOT, caches, first_position_Q=at(24))[1]
    one_less = model.draft(ANCHOR, at(39), SLOT, caches, first_position_Q=at(25))[1]
    # The window of 16 keys that ends at 39 begins at 24.
    assert torch.equal(usual, everything)
    assert not torch.equal(usual, one_less)


def test_context_ends_with_the_accepted_position(model: TextModel, caches: Caches) -> None:
    before = model.draft(ANCHOR, at(35), SLOT, caches)[1]
    step = text_step([*TOKENS[:36], 11, 12, 13, 14], 36, 40, caches)
    model.forward(step, caches)
    assert torch.equal(model.draft(ANCHOR, at(35), SLOT, caches)[1], before)


def test_a_sequence_shorter_than_the_window_drafts(model: TextModel) -> None:
    caches = fresh_caches(model, 1)
    model.forward(text_step(TOKENS, 0, 1, caches), caches)
    # What the ring held before must not be seen.
    first = model.draft(ANCHOR, at(0), SLOT, caches)
    dirty = fresh_caches(model, 1)
    dirty.states_PB.fill_(0x7F)
    model.forward(text_step(TOKENS, 0, 1, dirty), dirty)
    assert torch.equal(first[1], model.draft(ANCHOR, at(0), SLOT, dirty)[1])


@pytest.mark.parametrize("temperature", [1e-9, 0.5, 2.0])
def test_a_confidence_is_the_sigmoid_of_its_logit_over_the_temperature(
    short_model: Callable[[Numerics], TextModel], temperature: float
) -> None:
    model = short_model(
        Numerics(compute="float64", activation_quantisation=False, cache_quantisation=False)
    )
    assert model.drafter is not None
    caches = fresh_caches(model, 40)
    model.forward(text_step(TOKENS, 0, 40, caches), caches)
    usual = model.draft(ANCHOR, at(39), SLOT, caches)[1]
    markov = replace(model.drafter.markov, temperatures=(temperature,) * 5)
    heated = replace(model, drafter=replace(model.drafter, markov=markov))
    found = heated.draft(ANCHOR, at(39), SLOT, caches)[1]
    scaled = (usual.logit() / max(temperature, 1e-5)).clamp(-60, 60)
    # fp64 throughout; the logit of a confidence near 1 loses up to five digits.
    assert torch.allclose(found, scaled.sigmoid(), rtol=1e-9)
