"""Does a sequence care about the others in its step, its blocks, or which logits are wanted?"""

from dataclasses import replace

import pytest
import torch
from deepinfer_core.cache.storage import Caches
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.caches import allocate_caches
from deepinfer_core.model.evaluate import score_logits, text_step
from deepinfer_core.model.step import StepInputs
from deepinfer_core.testing.steps import join_steps
from deepinfer_core.testing.tiny import golden_tokens

FIRST = golden_tokens(40)
SECOND = golden_tokens(60)[20:]


def shared_caches(model: TextModel) -> Caches:
    return allocate_caches(
        model.config,
        model.parts.numerics,
        model.parts.codec,
        model.parts.device,
        num_blocks=8,
        num_slots=4,
        max_backtracking=6,
        block_tokens=16,
    )


@pytest.fixture(scope="session")
def alone(model: TextModel) -> tuple[torch.Tensor, torch.Tensor]:
    return score_logits(model, FIRST), score_logits(model, SECOND)


def first(caches: Caches, start: int, stop: int) -> StepInputs:
    return text_step(FIRST, start, stop, caches, block_ids=[6, 1, 4], state_slot=3)


def second(caches: Caches, start: int, stop: int) -> StepInputs:
    return text_step(SECOND, start, stop, caches, block_ids=[2, 7, 5], state_slot=1)


# Rows that both sequences have fed after each step; an unchanged number leaves it out. Up to six
# rows are read from the ring, more from a workspace; the last case has both kinds and both orders.
SCHEDULES = {
    "both decode": [(20, 0), (20, 20), *((20 + n, 20 + n) for n in range(1, 21))],
    "both in chunks": [(13, 20), (33, 35), (40, 40)],
    "mixed": [(20, 0), (21, 11), (22, 30), (38, 31), (40, 40)],
}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
def test_interleaved_sequences_give_the_bits_that_each_gives_alone(
    model: TextModel,
    alone: tuple[torch.Tensor, torch.Tensor],
    schedule: list[tuple[int, int]],
) -> None:
    caches = shared_caches(model)
    seen: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    fed = (0, 0)
    for ends in schedule:
        pieces = [
            (make(caches, start, end), logits)
            for make, start, end, logits in zip((first, second), fed, ends, seen, strict=True)
            if end > start
        ]
        logits_TV = model.forward(join_steps([step for step, _ in pieces]), caches)
        for step, logits in pieces:
            rows = step.token_T.shape[0]
            logits.append(logits_TV[:rows])
            logits_TV = logits_TV[rows:]
        fed = ends
    assert torch.equal(torch.cat(seen[0]), alone[0])
    assert torch.equal(torch.cat(seen[1]), alone[1])


def test_a_sequence_gives_the_same_bits_first_and_last_in_a_step(
    model: TextModel, alone: tuple[torch.Tensor, torch.Tensor]
) -> None:
    for order in (0, 1):
        caches = shared_caches(model)
        steps = [first(caches, 0, 40), second(caches, 0, 5)]
        logits_TV = model.forward(join_steps(steps[::-1] if order else steps), caches)
        assert torch.equal(logits_TV[5:] if order else logits_TV[:40], alone[0])


@pytest.mark.parametrize("rows", [[], [39], [0, 39], [7, 3]])
def test_only_wanted_rows_give_logits(
    model: TextModel, alone: tuple[torch.Tensor, torch.Tensor], rows: list[int]
) -> None:
    caches = shared_caches(model)
    wanted_R = torch.tensor(rows, dtype=torch.int64)
    logits_RV = model.forward(replace(first(caches, 0, 40), sample_row_R=wanted_R), caches)
    assert torch.equal(logits_RV, alone[0][rows])


def test_blocks_and_states_of_others_are_left_alone(model: TextModel) -> None:
    caches = shared_caches(model)
    caches.blocks_PB.fill_(1)
    caches.states_PB.fill_(1)
    model.forward(first(caches, 0, 40), caches)
    others = [block for block in range(8) if block not in (6, 1, 4)]
    assert bool((caches.blocks_PB[others] == 1).all())
    assert bool((caches.states_PB[[0, 1, 2]] == 1).all())


def test_what_the_caches_held_before_does_not_matter(
    model: TextModel, alone: tuple[torch.Tensor, torch.Tensor]
) -> None:
    caches = shared_caches(model)
    # 0x7f is a NaN in every 8-bit float and in wider ones when repeated.
    caches.blocks_PB.fill_(0x7F)
    caches.states_PB.fill_(0x7F)
    logits_TV = torch.cat(
        [model.forward(first(caches, a, b), caches) for a, b in ((0, 9), (9, 10), (10, 40))]
    )
    assert torch.equal(logits_TV, alone[0])
