"""Are rejected rows overwritten without a trace?"""

import pytest
import torch
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.evaluate import fresh_caches, score_logits, text_step
from deepinfer_core.testing.tiny import golden_tokens

TOKENS = golden_tokens(60)
ROWS = 6


@pytest.fixture(scope="session")
def expected(model: TextModel) -> torch.Tensor:
    return score_logits(model, TOKENS)


def verify(model: TextModel, prompt: int, accepted: list[int]) -> tuple[torch.Tensor, int]:
    """Feed steps of one right token, some right drafts and wrong ones up to six rows.

    Returns:
        Logits of all rows that were right, and how many tokens they are.
    """
    caches = fresh_caches(model, len(TOKENS), block_tokens=16)
    logits = [model.forward(text_step(TOKENS, 0, prompt, caches), caches)]
    position = prompt
    for drafts in accepted:
        right = position + 1 + drafts
        wrong = [(token + 1) % 4096 for token in TOKENS[right : position + ROWS]]
        tokens = [*TOKENS[:right], *wrong]
        out_TV = model.forward(text_step(tokens, position, position + ROWS, caches), caches)
        logits.append(out_TV[: right - position])
        position = right
    return torch.cat(logits), position


@pytest.mark.parametrize("prompt", [7, 8, 15, 16])
@pytest.mark.parametrize("drafts", range(ROWS))
def test_verification_with_rejected_drafts_gives_the_bits_of_plain_decoding(
    model: TextModel, expected: torch.Tensor, prompt: int, drafts: int
) -> None:
    logits_TV, tokens = verify(model, prompt, [drafts] * 4)
    assert torch.equal(logits_TV, expected[:tokens])


def test_changing_acceptance_over_many_steps_leaves_no_trace(
    model: TextModel, expected: torch.Tensor
) -> None:
    logits_TV, tokens = verify(model, 9, [0, 5, 1, 4, 2, 3, 0, 0, 5, 2])
    assert torch.equal(logits_TV, expected[:tokens])


def test_drafting_between_steps_leaves_no_trace(model: TextModel, expected: torch.Tensor) -> None:
    caches = fresh_caches(model, len(TOKENS))
    logits = [model.forward(text_step(TOKENS, 0, 30, caches), caches)]
    for position in range(30, 45):
        anchor = torch.tensor([TOKENS[position]])
        model.draft(anchor, torch.tensor([position - 1]), torch.tensor([1]), caches)
        step = text_step(TOKENS, position, position + 1, caches)
        logits.append(model.forward(step, caches))
    assert torch.equal(torch.cat(logits), expected[:45])
