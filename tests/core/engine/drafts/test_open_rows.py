"""Do open rows get the tokens and positions that only the device knows?"""

import pytest
import torch
from deepinfer_core.engine.drafts.open_rows import Left, OpenRows, kept_drafts
from deepinfer_core.engine.packed_step import PackedStep
from deepinfer_core.interfaces.device import Device
from deepinfer_core.model.step import StepInputs
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference.device import build_cpu
from deepinfer_core.schedule.plan import UNKNOWN_TOKEN, SequenceStep, StepPlan

OPEN = UNKNOWN_TOKEN


@pytest.fixture
def device() -> Device:
    return build_cpu(None, BuildContext(device="cpu", needs=ModelNeeds()))


def step(start: int, token_ids: tuple[int, ...], place: int, **rest: int) -> SequenceStep:
    return SequenceStep(
        sequence_id=place,
        start=start,
        token_ids=token_ids,
        history=(OPEN, OPEN, OPEN),
        block_ids=(place,),
        state_slot=place,
        wants_token=True,
        scored_rows=len(token_ids) - 1,
        place=place,
        **rest,
    )


def inputs(plan: StepPlan, device: Device) -> StepInputs:
    packed = PackedStep(plan, device)
    return packed.inputs(packed.bring(None))


def fed_before(device: Device) -> StepInputs:
    """Two texts: 10 to 13 at positions 1000 to 1003, and 20 alone at position 50."""
    first = step(1000, (10, 11, 12, 13), 1)._replace(history=(9, 8, 7))
    second = step(50, (20,), 2)._replace(history=(19, 18, 17))
    return inputs(StepPlan((first, second)), device)


def left(device: Device, accepted: list[bool], drawn: list[int]) -> Left:
    return Left(
        inputs=fed_before(device),
        row_R=torch.arange(5),
        token_R=torch.tensor(drawn),
        accepted_R=torch.tensor(accepted),
    )


def settled(device: Device, plan: StepPlan, before: Left | None) -> StepInputs:
    found = inputs(plan, device)
    draft_Sn = torch.tensor([[-1, -1, -1], [31, 32, -1], [41, 42, 43]])
    OpenRows(plan, device).settle(found, before, draft_Sn)
    return found


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_rows_begin_behind_the_drafts_that_were_kept(device: Device, kept: int) -> None:
    """The rows of a text that verified three drafts; the host thinks that all were kept."""
    plan = StepPlan((step(1004, (OPEN, OPEN), 1, drawn_index=0, open_rows=3),))
    accepted = [place < kept for place in range(3)] + [False, False]
    found = settled(device, plan, left(device, accepted, [11, 12, 13, 14, 21]))
    start = 1001 + kept
    drawn = 11 + kept
    assert found.position_T.tolist() == [start, start + 1]
    assert found.start_Q.tolist() == [start]
    assert found.token_T.tolist() == [drawn, 31]
    known = [7, 8, 9, 10, 11, 12, 13][: kept + 4]
    assert found.previous_T3[0].tolist() == known[::-1][:3]
    assert found.previous_T3[1].tolist() == [drawn, *known[::-1][:2]]


def test_a_draft_behind_a_rejected_one_does_not_count(device: Device) -> None:
    plan = StepPlan((step(1004, (OPEN,), 1, drawn_index=0, open_rows=3),))
    found = settled(device, plan, left(device, [True, False, True, False, False], [11, 5, 6, 7, 8]))
    assert (found.position_T.tolist(), found.token_T.tolist()) == ([1002], [5])


def test_a_step_ends_where_the_published_vector_says(device: Device) -> None:
    """1000 rows committed, a step of 6 in flight of which 2 drafts are kept, then 4 rows: 1007.

    Source: the verification planning vectors of DeepInfer 0.1.0.
    """
    in_flight = step(1000, (10, 11, 12, 13, 14, 15), 1)
    before = Left(
        inputs=inputs(StepPlan((in_flight,)), device),
        row_R=torch.arange(6),
        token_R=torch.tensor([11, 12, 99, 0, 0, 0]),
        accepted_R=torch.tensor([True, True, False, False, False, False]),
    )
    plan = StepPlan((step(1006, (OPEN,) * 4, 1, drawn_index=0, open_rows=5),))
    assert int(settled(device, plan, before).position_T[-1]) + 1 == 1007


def test_only_open_sequences_move_and_others_keep_their_rows(device: Device) -> None:
    known = step(7, (1, 2), 2)._replace(history=(6, 5, 4))
    opened = step(1004, (OPEN, OPEN, OPEN), 1, drawn_index=0, open_rows=3)
    found = settled(device, StepPlan((known, opened)), left(device, [False] * 5, [5, 0, 0, 0, 0]))
    assert found.position_T.tolist() == [7, 8, 1001, 1002, 1003]
    assert found.token_T.tolist() == [1, 2, 5, 31, 32]
    assert found.start_Q.tolist() == [7, 1001]


def test_a_token_that_was_drawn_without_drafts_is_filled_in_alone(device: Device) -> None:
    """The last row of a text whose other tokens are known, and a text that decodes."""
    ends_open = step(49, (19, OPEN), 2, drawn_index=4)._replace(scored_rows=0, history=(18, 17, 16))
    found = settled(device, StepPlan((ends_open,)), left(device, [False] * 5, [0, 0, 0, 0, 77]))
    assert found.token_T.tolist() == [19, 77]
    assert found.position_T.tolist() == [49, 50]


def test_where_there_is_no_draft_any_token_is_fed(device: Device) -> None:
    plan = StepPlan((step(1001, (OPEN,) * 4, 1, drawn_index=0),))
    found = settled(device, plan, left(device, [False] * 5, [5, 0, 0, 0, 0]))
    assert found.token_T.tolist() == [5, 31, 32, 0]


def test_behind_a_step_that_failed_nothing_is_filled_in(device: Device) -> None:
    plan = StepPlan((step(1004, (OPEN, OPEN), 1, drawn_index=0, open_rows=3),))
    assert settled(device, plan, None).token_T.tolist() == [OPEN, OPEN]


def test_drafts_are_counted_up_to_the_first_that_is_rejected() -> None:
    accepted_R = torch.tensor([True, True, False, True, False, True, True])
    first_Q, most_Q = torch.tensor([0, 3, 5, 6]), torch.tensor([2, 1, 1, 0])
    assert kept_drafts(accepted_R, first_Q, most_Q, 2).tolist() == [2, 1, 1, 0]
    assert kept_drafts(accepted_R, first_Q, most_Q * 0, 0).tolist() == [0, 0, 0, 0]
