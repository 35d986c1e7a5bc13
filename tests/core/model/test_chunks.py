"""Does a prompt give the same bits however it is cut into steps?"""

import pytest
import torch
from deepinfer_core.cache.storage import Caches
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.evaluate import fresh_caches, score_logits, text_step
from deepinfer_core.testing.tiny import golden_tokens, tiny_test_config
from deepinfer_core.testing.tiny_model import tiny_model

# Twice around a ring of 22 rows, an odd number, and a block of 16 tokens that is not full.
TOKENS = golden_tokens(45)


def run_in_chunks(
    model: TextModel, tokens: list[int], ends: list[int], block_tokens: int = 16
) -> tuple[torch.Tensor, Caches]:
    caches = fresh_caches(model, len(tokens), block_tokens=block_tokens)
    logits = [
        model.forward(text_step(tokens, start, end, caches), caches)
        for start, end in zip([0, *ends[:-1]], ends, strict=True)
    ]
    return torch.cat(logits), caches


@pytest.fixture(scope="session")
def at_once(model: TextModel) -> tuple[torch.Tensor, Caches]:
    return run_in_chunks(model, TOKENS, [len(TOKENS)])


@pytest.mark.parametrize("size", range(1, 41))
def test_chunks_of_every_size_give_the_logits_and_caches_of_one_step(
    model: TextModel, at_once: tuple[torch.Tensor, Caches], size: int
) -> None:
    logits_TV, caches = run_in_chunks(model, TOKENS, [*range(size, len(TOKENS), size), len(TOKENS)])
    assert torch.equal(logits_TV, at_once[0])
    assert torch.equal(caches.blocks_PB, at_once[1].blocks_PB)
    assert torch.equal(caches.states_PB, at_once[1].states_PB)


@pytest.mark.parametrize("length", range(1, 9))
def test_prompts_of_every_length_continue_by_decoding(
    model: TextModel, at_once: tuple[torch.Tensor, Caches], length: int
) -> None:
    ends = [length, *range(length + 1, length + 4)]
    logits_TV, _ = run_in_chunks(model, TOKENS[: ends[-1]], ends)
    assert torch.equal(logits_TV, at_once[0][: ends[-1]])


@pytest.mark.parametrize("first", [6, 7, 15, 16, 17, 21, 22, 23, 31, 32, 33])
def test_a_cut_at_the_edges_of_window_ring_and_block_changes_nothing(
    model: TextModel, at_once: tuple[torch.Tensor, Caches], first: int
) -> None:
    logits_TV, caches = run_in_chunks(model, TOKENS, [first, len(TOKENS)])
    assert torch.equal(logits_TV, at_once[0])
    assert torch.equal(caches.states_PB, at_once[1].states_PB)


def test_a_window_as_long_as_the_full_model_s_wraps_its_ring() -> None:
    config = tiny_test_config(
        num_hidden_layers=3,
        compress_ratios=[0, 2, 1],
        kv_source_layer_ids=[1, 2],
        index_source_layer_ids=[1, 2],
        candidate_source_layer_id=2,
        engram_layer_ids=[],
        engram_num_embeddings=[],
        num_nextn_predict_layers=0,
        dspark_target_layer_ids=[],
        sliding_window=128,
    )
    model = tiny_model(Numerics(), config=config)
    caches = fresh_caches(model, 1)
    assert caches.layout.state.ring_tokens == 129
    tokens = golden_tokens(150)
    expected_TV, _ = run_in_chunks(model, tokens, [150])
    for ends in ([127, 128, 129, 130, 150], [1, 135, 150], [120, *range(121, 151)]):
        logits_TV, _ = run_in_chunks(model, tokens, ends)
        assert torch.equal(logits_TV, expected_TV)


@pytest.mark.parametrize("ends", [[70, *range(71, 79)], [40, 60, 66, 78], [13, 78]])
def test_a_candidate_pool_that_leaves_blocks_out_is_the_same_in_every_chunk(
    model: TextModel, ends: list[int]
) -> None:
    # The pool holds 8 blocks of 8 entries, so it is smaller than the text from entry 64 on.
    tokens = golden_tokens(78)
    seen: list[str] = []
    expected_TV = score_logits(model, tokens, probe=lambda name, value: seen.append(name))
    assert "layers.5.index.restricted" in seen
    logits_TV, _ = run_in_chunks(model, tokens, ends)
    assert torch.equal(logits_TV, expected_TV)


def test_the_size_of_a_block_changes_nothing(
    model: TextModel, at_once: tuple[torch.Tensor, Caches]
) -> None:
    logits_TV, _ = run_in_chunks(model, TOKENS, [30, len(TOKENS)], block_tokens=128)
    assert torch.equal(logits_TV, at_once[0])


def test_scoring_a_text_feeds_all_of_it(
    model: TextModel, at_once: tuple[torch.Tensor, Caches]
) -> None:
    assert torch.equal(score_logits(model, TOKENS), at_once[0])
    assert torch.equal(score_logits(model, TOKENS, chunk_tokens=44), at_once[0])


def test_scoring_one_token_works(model: TextModel, at_once: tuple[torch.Tensor, Caches]) -> None:
    assert torch.equal(score_logits(model, TOKENS[:1]), at_once[0][:1])
