"""Plans as tensors: rows of all sequences, what surrounds them, and padding."""

import pytest
import torch
from deepinfer_core.engine.packed_step import PackedStep, StepShape, step_inputs
from deepinfer_core.reference.device import CpuDevice
from deepinfer_core.schedule.plan import UNKNOWN_TOKEN, StepPlan
from deepinfer_core.testing.steps import planned_step

CPU = CpuDevice()


def test_rows_of_all_sequences_stand_one_after_the_other() -> None:
    plan = StepPlan(sequences=(planned_step(0, [5, 6], [3], 1), planned_step(130, [7], [9, 4], 2)))
    inputs = step_inputs(plan, CPU)
    assert inputs.token_T.tolist() == [5, 6, 7]
    assert inputs.position_T.tolist() == [0, 1, 130]
    assert inputs.sequence_T.tolist() == [0, 0, 1]
    assert inputs.block_table_QB.tolist() == [[3, -1], [9, 4]]
    assert inputs.state_slot_Q.tolist() == [1, 2]
    assert (inputs.starts, inputs.row_counts, inputs.valid_starts) == ((0, 130), (2, 1), (0, 0))
    assert inputs.sample_row_R.tolist() == [1, 2]
    assert not inputs.image_T.any()


@pytest.mark.parametrize("start", [0, 1, 2, 3, 4])
def test_each_row_sees_the_three_tokens_before_it(start: int) -> None:
    inputs = step_inputs(StepPlan(sequences=(planned_step(start, [5, 6, 7, 8], [1], 1),)), CPU)
    whole = [100 + place for place in range(start)] + [5, 6, 7, 8]
    wanted = [[whole[p - i] if p >= i else -1 for i in (1, 2, 3)] for p in range(start, start + 4)]
    assert inputs.previous_T3.tolist() == wanted


def test_logits_are_wanted_of_scored_rows_and_of_the_last_one() -> None:
    first = planned_step(0, [5, 6, 7], [3], 1)._replace(scored_rows=2)
    second = planned_step(9, [8, 9], [4], 2)._replace(wants_token=False)
    third = planned_step(3, [4], [5], 3)
    assert StepPlan((first, second, third)).wanted_rows() == [0, 1, 2, 5]
    assert step_inputs(StepPlan((first, second, third)), CPU).sample_row_R.tolist() == [0, 1, 2, 5]


def test_what_the_host_decides_by_is_on_the_device_too() -> None:
    first = planned_step(8, [5, 6], [3], 1, cached_end=8, valid_start=4, keep_from=2)
    inputs = step_inputs(StepPlan((first, planned_step(130, [7], [9, 4], 2))), CPU)
    for host, placed_Q in (
        (inputs.starts, inputs.start_Q),
        (inputs.row_counts, inputs.row_count_Q),
        (inputs.valid_starts, inputs.valid_start_Q),
        (inputs.cached_ends, inputs.cached_end_Q),
        (inputs.keep_from, inputs.keep_from_Q),
        (inputs.sample_rows, inputs.sample_row_R),
    ):
        assert host is not None
        assert placed_Q.tolist() == list(host)
    assert inputs.cached_ends == (8, 0)


@pytest.mark.parametrize("drawn", [None, [21, 22, 23]])
def test_open_tokens_are_those_that_were_drawn_or_stay_open(drawn: list[int] | None) -> None:
    plan = StepPlan(
        (
            planned_step(4, [UNKNOWN_TOKEN], [1], 1, drawn_index=2),
            planned_step(4, [9], [2], 2),
            planned_step(4, [8, UNKNOWN_TOKEN], [3], 3, drawn_index=0),
        )
    )
    packed = PackedStep(plan, CPU)
    words = packed.bring(None if drawn is None else torch.tensor(drawn))
    unknown = UNKNOWN_TOKEN
    wanted = [unknown, 9, 8, unknown] if drawn is None else [23, 9, 8, 21]
    assert packed.inputs(words).token_T.tolist() == wanted


def test_padding_is_rows_of_the_dummy_pages_at_position_0() -> None:
    plan = StepPlan((planned_step(17, [5], [3, 4], 1),))
    packed = PackedStep(plan, CPU, shape=StepShape(rows=3, sequences=3, blocks=4))
    inputs = packed.inputs(packed.bring(None))
    assert inputs.token_T.tolist() == [5, 0, 0]
    assert inputs.position_T.tolist() == [17, 0, 0]
    assert inputs.sequence_T.tolist() == [0, 2, 2]
    assert inputs.previous_T3[0].tolist() == [116, 115, 114]
    assert inputs.block_table_QB.tolist() == [[3, 4, -1, -1], [0, -1, -1, -1], [0, -1, -1, -1]]
    assert inputs.state_slot_Q.tolist() == [1, 0, 0]
    assert inputs.sample_row_R.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("rows", "padding"), [(4, 0), (5, 1), (300, 296)])
def test_sequences_of_several_rows_are_padded_by_one_sequence(rows: int, padding: int) -> None:
    first = planned_step(17, [5, 6, 7], [3, 4], 1)._replace(scored_rows=2)
    plan = StepPlan((first, planned_step(2, [8], [5], 2)))
    packed = PackedStep(plan, CPU, shape=StepShape(rows=rows, sequences=4, blocks=2))
    inputs = packed.inputs(packed.bring(None))
    assert inputs.token_T.tolist() == [5, 6, 7, 8] + [0] * padding
    assert inputs.position_T.tolist() == [17, 18, 19, 2] + [0] * padding
    assert inputs.sequence_T.tolist() == [0, 0, 0, 1] + [3] * padding
    assert inputs.start_Q.tolist() == [17, 2, 0, 0]
    assert inputs.row_count_Q.tolist() == [3, 1, 0, padding]
    assert inputs.block_table_QB.tolist() == [[3, 4], [5, -1], [0, -1], [0, -1]]
    assert inputs.sample_row_R.tolist() == list(range(rows))


def test_steps_of_one_shape_are_packed_alike() -> None:
    shape = StepShape(rows=3, sequences=3, blocks=4)
    plans = [
        StepPlan((planned_step(17, [5], [3, 4], 1),)),
        StepPlan(
            (
                planned_step(0, [6], [1], 2),
                planned_step(40, [UNKNOWN_TOKEN], [5, 6, 7], 3, drawn_index=1),
            )
        ),
    ]
    first, second = (PackedStep(plan, CPU, shape=shape) for plan in plans)
    words, others = first.bring(None), second.bring(torch.tensor([31, 32]))
    words.copy_(others[: words.shape[0]])  # what a recording does
    inputs = first.inputs(words)
    assert inputs.token_T.tolist() == [6, 32, 0]
    assert inputs.position_T.tolist() == [0, 40, 0]
    assert inputs.block_table_QB.tolist()[1] == [5, 6, 7, -1]
