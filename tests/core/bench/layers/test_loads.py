"""Do the steps of a load feed what their bound counts?"""

import pytest
from deepinfer_core.bench.layers.loads import Decoding, Pool, Prompt
from deepinfer_core.schedule.plan import UNKNOWN_TOKEN

POOL = Pool(blocks=5, block_tokens=8, vocabulary=100)


def test_a_prompt_is_fed_in_chunks_and_its_last_row_is_drawn_from() -> None:
    prompt = Prompt(tokens=20, chunk=8)
    steps = [plan.sequences[0] for plan in prompt.plans(POOL)]
    assert [(step.start, len(step.token_ids)) for step in steps] == [(0, 8), (8, 8), (16, 4)]
    assert [step.wants_token for step in steps] == [False, False, True]
    assert [step.block_ids for step in steps] == [(1,), (1, 2), (1, 2, 3)]
    ids = [token for step in steps for token in step.token_ids]
    assert [step.history for step in steps] == [
        (-1, -1, -1),
        (ids[7], ids[6], ids[5]),
        (ids[15], ids[14], ids[13]),
    ]
    assert [(load.start, load.rows, load.drawn) for load in prompt.loads(3)] == [
        (0, 8, 0),
        (8, 8, 0),
        (16, 4, 1),
    ]


@pytest.mark.parametrize("rows", [1, 6])
def test_decode_steps_follow_each_other_and_end_at_the_context(rows: int) -> None:
    decoding = Decoding(sequences=2, context=24, rows=rows, steps=4)
    plans = [decoding.plan(POOL, number, is_first=number == 0) for number in range(4)]
    starts = [plan.sequences[0].start for plan in plans]
    assert starts == [24 - rows * left for left in (4, 3, 2, 1)]
    assert {plan.rows for plan in plans} == {2 * rows}
    assert [plan.wanted_rows() for plan in plans] == [list(range(2 * rows))] * 4
    load = decoding.load(7.0)
    assert (load.start, load.end, load.all_rows, load.experts) == (24 - rows, 24, 2 * rows, 7.0)


def test_single_rows_feed_what_the_step_before_drew() -> None:
    decoding = Decoding(sequences=2, context=24, rows=1, steps=4)
    first, second = (decoding.plan(POOL, n, is_first=n == 0) for n in (0, 1))
    assert all(step.token_ids != (UNKNOWN_TOKEN,) for step in first.sequences)
    assert [step.token_ids for step in second.sequences] == [(UNKNOWN_TOKEN,)] * 2
    assert [step.drawn_index for step in second.sequences] == [0, 1]


def test_several_rows_feed_known_drafts() -> None:
    plan = Decoding(sequences=2, context=24, rows=3, steps=4).plan(POOL, 1, is_first=False)
    for step in plan.sequences:
        assert UNKNOWN_TOKEN not in step.token_ids
        assert (step.scored_rows, step.drawn_index) == (2, -1)


def test_texts_take_blocks_in_turn_and_share_them_when_the_pool_ends() -> None:
    plan = Decoding(sequences=3, context=16, rows=1, steps=2).plan(POOL, 1, is_first=False)
    assert [step.block_ids for step in plan.sequences] == [(1, 2), (3, 4), (5, 1)]
    assert [step.state_slot for step in plan.sequences] == [1, 2, 3]


def test_a_text_keeps_its_blocks_while_it_grows() -> None:
    decoding = Decoding(sequences=2, context=17, rows=1, steps=4)
    before, after = (decoding.plan(POOL, number, is_first=False) for number in (2, 3))
    assert [step.block_ids for step in before.sequences] == [(1, 2), (4, 5)]
    assert [step.block_ids for step in after.sequences] == [(1, 2, 3), (4, 5, 1)]


def test_every_row_is_drawn_at_the_position_behind_it() -> None:
    decoding = Decoding(sequences=2, context=24, rows=3, steps=4)
    drawn = decoding.drawn(3)
    assert [one.row for one in drawn] == list(range(6))
    assert [one.position for one in drawn] == [22, 23, 24] * 2
    assert all(one.settings.temperature > 0 for one in drawn)
