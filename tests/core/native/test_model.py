"""Does a whole model on core.cpu give a row the same bits in every company, near the reference?"""

import pytest
import torch
from deepinfer_core.cache.storage import Caches
from deepinfer_core.config.kernel_cache import kernel_cache_folder
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.caches import allocate_caches
from deepinfer_core.model.evaluate import fresh_caches, score_logits, text_step
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.native import all_to_all, attention, gemm, transform
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference.device import build_cpu
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.steps import join_steps
from deepinfer_core.testing.tiny import golden_tokens
from deepinfer_core.testing.tiny_model import tiny_model

# Beyond a candidate pool of 64 entries, and several times around every ring.
TOKENS = golden_tokens(78)
SEMANTIC = Numerics(compute="float32", activation_quantisation=False, cache_quantisation=False)


def cpu_parts(numerics: Numerics) -> ModelParts:
    needs = ModelNeeds(compute=numerics.compute)
    context = BuildContext(device="cpu", needs=needs, cache_dir=kernel_cache_folder())
    attending, multiplying = attention.build(None, context), gemm.build(None, context)
    return ModelParts(
        device=build_cpu(None, context),
        prefill=attending,
        decode=attending,
        indexer=attending,
        codec=attending,
        dense=multiplying,
        grouped=multiplying,
        transform=transform.build(None, context),
        all_to_all=all_to_all.build(None, context),
        numerics=numerics,
    )


@pytest.fixture(scope="module", params=[SEMANTIC, Numerics()], ids=["semantic", "production"])
def model(request: pytest.FixtureRequest) -> TextModel:
    return tiny_model(request.param, parts=cpu_parts(request.param))


def in_chunks(model: TextModel, ends: list[int]) -> tuple[torch.Tensor, Caches]:
    caches = fresh_caches(model, ends[-1], block_tokens=16)
    logits = [
        model.forward(text_step(TOKENS, start, end, caches), caches)
        for start, end in zip([0, *ends[:-1]], ends, strict=True)
    ]
    return torch.cat(logits), caches


@pytest.mark.parametrize(
    "ends",
    [
        list(range(1, 79)),
        [*range(7, 78, 7), 78],
        [15, 16, 17, 33, 50, 78],
        [70, *range(71, 79)],
        [22, 23, 45, 78],
    ],
    ids=["one by one", "by sevens", "at the window", "then one by one", "at the ring"],
)
def test_chunks_give_the_logits_and_caches_of_one_step(model: TextModel, ends: list[int]) -> None:
    want_TV, want_caches = in_chunks(model, [78])
    got_TV, caches = in_chunks(model, ends)
    assert_same_bits(got_TV, want_TV)
    assert_same_bits(caches.blocks_PB, want_caches.blocks_PB)
    assert_same_bits(caches.states_PB, want_caches.states_PB)


def test_a_sequence_has_the_same_bits_alone_first_last_and_in_the_middle(model: TextModel) -> None:
    # Five sequences of other lengths decode together, then in the reverse order.
    lengths, blocks = [1, 20, 33, 47, 60], 5
    caches = allocate_caches(
        model.config,
        model.parts.numerics,
        model.parts.codec,
        model.parts.device,
        num_blocks=1 + blocks * len(lengths),
        num_slots=1 + len(lengths),
        max_backtracking=model.config.verified_rows,
        block_tokens=16,
    )
    tokens = [golden_tokens(70)[number:] for number in range(len(lengths))]

    def step(number: int, start: int, stop: int) -> torch.Tensor:
        block_ids = range(1 + blocks * number, 1 + blocks * (number + 1))
        return text_step(
            tokens[number], start, stop, caches, block_ids=block_ids, state_slot=1 + number
        )

    for number, length in enumerate(lengths):
        model.forward(step(number, 0, length), caches)
    steps = [step(number, length, length + 1) for number, length in enumerate(lengths)]
    alone_QV = torch.cat([model.forward(one, caches) for one in steps])
    assert_same_bits(model.forward(join_steps(steps), caches), alone_QV)
    assert_same_bits(model.forward(join_steps(steps[::-1]), caches), alone_QV.flip(0))
    # A long chunk of another sequence beside the decoding rows.
    mixed = join_steps([step(4, 30, 60), *steps[:4]])
    assert_same_bits(model.forward(mixed, caches)[30:], alone_QV[:4])


@pytest.mark.parametrize("count", [1, 2, 5])
def test_two_sequences_draft_what_each_drafts_alone(model: TextModel, count: int) -> None:
    caches = fresh_caches(model, 60, block_tokens=16)
    model.forward(text_step(TOKENS, 0, 40, caches), caches)
    caches.states_PB[0] = caches.states_PB[1]
    anchor_Q, position_Q, slot_Q = (torch.tensor(n) for n in ([7, 9], [30, 39], [0, 1]))
    alone = [
        model.draft(anchor_Q[n], position_Q[n], slot_Q[n], caches, count=count)
        for n in (slice(0, 1), slice(1, 2))
    ]
    both = model.draft(anchor_Q, position_Q, slot_Q, caches, count=count)
    for part in range(2):
        assert_same_bits(both[part], torch.cat([one[part] for one in alone]))


def test_logits_agree_with_the_reference_without_roundings() -> None:
    # Both sum in fp32, in another order: a product of at most 512 channels is off by 2^-15 of its
    # absolute products at most, and typically by 2^-21. Twelve layers leave it below a thousandth.
    got_TV = score_logits(tiny_model(SEMANTIC, parts=cpu_parts(SEMANTIC)), TOKENS)
    want_TV = score_logits(tiny_model(SEMANTIC), TOKENS)
    spread = float(want_TV.std())
    assert float((got_TV - want_TV).abs().max()) < 1e-3 * spread
