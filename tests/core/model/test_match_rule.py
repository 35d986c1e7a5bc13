"""Does verification by the match rule give the tokens of plain decoding, whatever is drafted?

Draws are keyed by seed and absolute position alone, so a row that verifies a draft draws what the
same position draws in a step of its own.
"""

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from deepinfer_core.cache.storage import Caches
from deepinfer_core.engine.acceptance import accept_matching
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.interfaces.sampler import (
    LogitsRules,
    SamplerOutputs,
    SamplerRows,
    SamplerSpec,
)
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.evaluate import fresh_caches, text_step
from deepinfer_core.reference.sampler import ReferenceSampler
from deepinfer_core.testing.tiny import golden_tokens, tiny_test_config
from deepinfer_core.testing.tiny_model import tiny_model

Draft = Callable[[list[int], Caches], list[int]]

PROMPT = [token % 500 for token in golden_tokens(9)]
LENGTH = 12
VOCABULARY = 512
LAWS = [(0.0, 0, 1.0), (1.0, 1, 1.0), (1.0, 2, 1.0), (1.0, 2**64 - 3, 1.0), (0.5, 7, 2.0)]
"""Temperature, seed, repetition penalty."""


@pytest.fixture(scope="module")
def drafting_model() -> TextModel:
    """Three layers with compressed entries of both ratios and a drafter, in production numerics."""
    config = tiny_test_config(
        vocab_size=VOCABULARY,
        num_hidden_layers=3,
        compress_ratios=[0, 2, 1, 0],
        kv_source_layer_ids=[1, 2],
        index_source_layer_ids=[1, 2],
        candidate_source_layer_id=2,
        engram_layer_ids=[],
        engram_num_embeddings=[],
        engram_compressed_vocab_size=500,
        num_nextn_predict_layers=1,
        dspark_target_layer_ids=[2],
        dspark_noise_token_id=VOCABULARY - 1,
    )
    return tiny_model(Numerics(), config=config)


def draw(
    logits_RV: torch.Tensor, histories: Sequence[list[int]], law: tuple[float, int, float]
) -> list[int]:
    """Draw the token behind each history; one row each."""
    temperature, seed, penalty = law
    rows = len(histories)

    def column(value: float, dtype: torch.dtype) -> torch.Tensor:
        return torch.full((rows,), value, dtype=dtype)

    seen = [sorted(set(history)) for history in histories]
    widest = max(map(len, seen))
    settings = SamplerRows(
        temperature_R=column(temperature, torch.float32),
        top_p_R=column(0.95, torch.float32),
        top_k_R=column(-1, torch.int64),
        min_p_R=column(0.0, torch.float32),
        seed_R=column(seed - (1 << 64) * (seed >> 63), torch.int64),
        position_R=torch.tensor([len(history) for history in histories]),
        forced_R=column(-1, torch.int64),
        rules=LogitsRules(
            bias_token_RB=torch.full((rows, 1), -1),
            bias_RB=torch.zeros(rows, 1),
            seen_token_RN=torch.tensor([[*s, *[-1] * (widest - len(s))] for s in seen]),
            output_count_RN=torch.zeros(rows, widest, dtype=torch.int64),
            repetition_R=column(penalty, torch.float32),
            frequency_R=column(0.0, torch.float32),
            presence_R=column(0.0, torch.float32),
        ),
    )
    out = SamplerOutputs(
        token_R=torch.empty(rows, dtype=torch.int64),
        logprob_R=torch.empty(rows),
        processed_logprob_R=torch.empty(rows),
        top_token_RA=torch.empty(rows, 0, dtype=torch.int64),
        top_logprob_RA=torch.empty(rows, 0),
        invalid_R=torch.empty(rows, dtype=torch.bool),
    )
    sampler = ReferenceSampler()
    plan = sampler.plan(SamplerSpec(vocabulary=VOCABULARY), rows)
    sampler.run(plan, logits_RV, settings, out)
    return out.token_R.tolist()


def rounds(model: TextModel, law: tuple[float, int, float], draft: Draft) -> Iterator[list[int]]:
    """Tokens that each step emits: the first step feeds the prompt, the others verify drafts."""
    caches = fresh_caches(model, len(PROMPT) + LENGTH + 16)
    text, fed, drafts = list(PROMPT), 0, list[int]()
    while True:
        known = len(text)
        fed_text = [*text, *drafts]
        logits_TV = model.forward(text_step(fed_text, fed, len(fed_text), caches), caches)
        # Rows before the last certain token verify nothing.
        histories = [fed_text[: known + i] for i in range(len(drafts) + 1)]
        drawn = draw(logits_TV[known - 1 - fed :], histories, law)
        emitted = drawn[: accept_matching(drafts, drawn) + 1]
        yield emitted
        text += emitted
        fed = len(text) - 1
        drafts = draft(text, caches)


def decode(
    model: TextModel, law: tuple[float, int, float], draft: Draft
) -> tuple[list[int], list[int]]:
    """The first tokens, and how many each step emitted."""
    tokens, counts = list[int](), list[int]()
    for emitted in rounds(model, law, draft):
        tokens += emitted
        counts.append(len(emitted))
        if len(tokens) >= LENGTH:
            break
    return tokens[:LENGTH], counts


@pytest.fixture(scope="module")
def plain(drafting_model: TextModel) -> dict[tuple[float, int, float], list[int]]:
    return {law: decode(drafting_model, law, lambda text, caches: [])[0] for law in LAWS}


def test_laws_differ_in_their_tokens(plain: dict[tuple[float, int, float], list[int]]) -> None:
    assert len({tuple(tokens) for tokens in plain.values()}) == len(LAWS)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("count", range(6))
def test_right_and_wrong_drafts_leave_the_tokens_of_plain_decoding(
    drafting_model: TextModel,
    plain: dict[tuple[float, int, float], list[int]],
    law: tuple[float, int, float],
    count: int,
) -> None:
    """Step after step one draft more is right, up to all of them, then none again."""
    turn = [0]
    whole = [*PROMPT, *plain[law]]

    def draft(text: list[int], caches: Caches) -> list[int]:
        right = turn[0] % (count + 1)
        turn[0] += 1
        true = [*whole, *[0] * 8][len(text) : len(text) + count]
        return [*true[:right], *((token + 1) % VOCABULARY for token in true[right:])]

    tokens, counts = decode(drafting_model, law, draft)
    assert tokens == plain[law]
    expected = [1 + step % (count + 1) for step in range(len(counts) - 1)]
    assert counts[1:-1] == expected[: len(counts) - 2]


@pytest.mark.parametrize("law", LAWS[:3])
def test_drafts_of_the_drafter_leave_the_tokens_of_plain_decoding(
    drafting_model: TextModel,
    plain: dict[tuple[float, int, float], list[int]],
    law: tuple[float, int, float],
) -> None:
    def draft(text: list[int], caches: Caches) -> list[int]:
        anchor, last = torch.tensor([text[-1]]), torch.tensor([len(text) - 2])
        drafts, _ = drafting_model.draft(anchor, last, torch.tensor([1]), caches)
        return [int(token) for token in drafts[0]]

    assert decode(drafting_model, law, draft)[0] == plain[law]
