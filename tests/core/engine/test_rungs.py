"""Does every decode step find a rung that can do it, and none that pads it too much?"""

import pytest
from deepinfer_core.engine import rungs
from deepinfer_core.engine.rungs import FewRungs, NearRungs, Rung, reach_rungs, row_rungs
from deepinfer_core.schedule.plan import SequenceStep, StepPlan

BLOCK = 16


def feeding(start: int, blocks: int | None = None, **changes: object) -> SequenceStep:
    step = SequenceStep(
        sequence_id=1,
        start=start,
        token_ids=(5,),
        history=(1, 2, 3),
        block_ids=tuple(range(1, 2 + (start // BLOCK if blocks is None else blocks - 1))),
        state_slot=1,
        wants_token=True,
    )
    return step._replace(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("most", "sizes"),
    [
        (1, [1]),
        (2, [1, 2]),
        (3, [1, 2, 3]),
        (4, [1, 2, 3, 4]),
        (16, [1, 2, 3, 4, 6, 8, 12, 16]),
        (20, [1, 2, 3, 4, 6, 8, 12, 16, 20]),
    ],
)
def test_row_counts_double_in_two_rungs_and_end_at_the_most(most: int, sizes: list[int]) -> None:
    assert row_rungs(most) == sizes


def test_less_than_half_of_a_step_is_padding() -> None:
    for most in range(1, 257):
        sizes = row_rungs(most)
        for rows in range(1, most + 1):
            assert next(rung for rung in sizes if rung >= rows) < 2 * rows


@pytest.mark.parametrize(
    ("tokens", "sizes"),
    [
        (1, [128]),
        (128, [128]),
        (129, [256]),
        (4096, [4096]),
        (4097, [4096, 4224]),
        (131072, [4096, 32768, 131072]),
        (1 << 20, [4096, 32768, 262144, 1 << 20]),
    ],
)
def test_reaches_are_whole_blocks_and_cover_the_longest_text(tokens: int, sizes: list[int]) -> None:
    assert reach_rungs(tokens, 128) == sizes


@pytest.mark.parametrize(
    ("steps", "rung"),
    [
        ([feeding(0)], Rung(1, 32)),
        ([feeding(32)], Rung(1, 32)),
        ([feeding(33)], Rung(1, 64)),
        ([feeding(32, blocks=4)], Rung(1, 64)),
        ([feeding(64)], Rung(1, 64)),
        ([feeding(65)], Rung(1, 112)),
        ([feeding(112)], Rung(1, 112)),
        ([feeding(113)], None),
        ([feeding(3), feeding(65), feeding(9)], Rung(3, 112)),
        ([feeding(3)] * 4, Rung(4, 32)),
        ([feeding(3)] * 5, None),
        ([feeding(3), feeding(5, token_ids=(1, 2))], None),
        ([feeding(3, wants_token=False)], None),
        ([feeding(3, scored_rows=1)], None),
        ([feeding(32, cached_end=32)], Rung(1, 32)),
        ([feeding(31, cached_end=32)], None),
        ([feeding(20, valid_start=20)], Rung(1, 32)),
    ],
)
def test_a_step_goes_to_the_smallest_of_few_rungs_that_can_do_it(
    steps: list[SequenceStep], rung: Rung | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rungs, "_LOWEST_REACH", 32)
    monkeypatch.setattr(rungs, "_REACH_FACTOR", 2)
    ladder = FewRungs(max_sequences=4, max_tokens=100, block_tokens=BLOCK)
    assert ladder.rung_of(StepPlan(tuple(steps))) == rung


def verifying(rows: int, start: int = 3) -> SequenceStep:
    blocks = 1 + (start + rows - 1) // BLOCK
    return feeding(start, blocks, token_ids=(5,) * rows, scored_rows=rows - 1)


@pytest.mark.parametrize(
    ("steps", "rung"),
    [
        ([verifying(1)], Rung(1, 128, 3)),
        ([verifying(3)], Rung(3, 128, 3)),
        ([verifying(4)], None),
        ([verifying(3), verifying(2)], Rung(6, 128, 3)),
        ([verifying(3), verifying(1), verifying(2)], Rung(6, 128, 3)),
        ([verifying(3)] * 5, Rung(15, 128, 3)),
        ([verifying(1)] * 5, Rung(6, 128, 3)),
        ([verifying(1)] * 6, None),
        ([verifying(3, start=14)], Rung(3, 128, 3)),
        ([verifying(3, start=111)], Rung(3, 128, 3)),
        ([verifying(3, start=126)], Rung(3, 128, 3)),
        ([verifying(3, start=128)], Rung(3, 128, 3)),
        ([verifying(3, start=129)], None),
        ([verifying(3)._replace(scored_rows=1)], None),
        ([verifying(3)._replace(wants_token=False)], None),
    ],
)
def test_the_rung_of_several_rows_a_sequence_is_that_of_all_rows_together(
    steps: list[SequenceStep], rung: Rung | None
) -> None:
    ladder = FewRungs(max_sequences=5, max_tokens=128, block_tokens=BLOCK, rows_each=3)
    assert [one.rows for one in ladder.rungs] == [15, 12, 8, 6, 4, 3, 2, 1]
    assert ladder.rung_of(StepPlan(tuple(steps))) == rung


def test_near_rungs_of_several_rows_a_sequence_end_at_all_rows_together() -> None:
    ladder = NearRungs(max_sequences=11, max_tokens=1000, block_tokens=BLOCK, rows_each=3)
    assert ladder.rung_of(StepPlan((verifying(2),) * 11)) == Rung(22, 256, 3)
    assert ladder.rung_of(StepPlan((*[verifying(3)] * 10, verifying(1)))) == Rung(32, 256, 3)
    assert ladder.rung_of(StepPlan((verifying(3),) * 11)) == Rung(33, 256, 3)


def test_steps_of_one_row_a_sequence_have_near_rungs_of_their_own() -> None:
    ladder = NearRungs(max_sequences=11, max_tokens=1000, block_tokens=BLOCK, rows_each=3)
    assert ladder.rung_of(StepPlan((verifying(1),) * 9)) == Rung(9, 256, 1)
    assert ladder.rung_of(StepPlan((*[verifying(1)] * 7, verifying(2)))) == Rung(9, 256, 3)


@pytest.mark.parametrize(
    ("start", "rows", "rung"),
    [
        (0, 1, Rung(1, 256)),
        (256, 2, Rung(2, 256)),
        (257, 15, Rung(15, 288)),
        (288, 16, Rung(16, 288)),
        (289, 17, Rung(18, 320)),
        (512, 31, Rung(32, 512)),
        (513, 33, Rung(36, 576)),
        (1000, 37, Rung(38, 1008)),
        (1008, 38, Rung(38, 1008)),
    ],
)
def test_near_rungs_are_an_eighth_larger_at_most_and_end_at_the_limits(
    start: int, rows: int, rung: Rung
) -> None:
    ladder = NearRungs(max_sequences=38, max_tokens=1000, block_tokens=BLOCK)
    assert ladder.rung_of(StepPlan((feeding(start),) * rows)) == rung


def test_a_near_rung_holds_every_step_that_it_is_given() -> None:
    ladder = NearRungs(max_sequences=300, max_tokens=5000, block_tokens=BLOCK)
    for size in range(1, 301):
        rung = ladder.rung_of(StepPlan((feeding(16 * size),) * size))
        assert rung is not None
        assert size <= rung.rows <= size * 9 / 8
        assert 16 * size <= rung.reach <= max(256, 16 * size * 9 / 8 + BLOCK)
        assert rung.reach % BLOCK == 0


@pytest.mark.parametrize("ladder", [FewRungs(2, 100, BLOCK), NearRungs(2, 100, BLOCK)])
@pytest.mark.parametrize(
    ("steps", "has_rung"),
    [
        ([feeding(112)], True),
        ([feeding(113)], False),
        ([feeding(3), feeding(112)], True),
        ([feeding(3)] * 3, False),
        ([feeding(3), feeding(5, token_ids=(1, 2))], False),
        ([feeding(3, wants_token=False)], False),
        ([feeding(3, scored_rows=1)], False),
        ([feeding(32, cached_end=32)], True),
        ([feeding(31, cached_end=32)], False),
        ([feeding(20, valid_start=20)], True),
        ([feeding(20, valid_start=21)], False),
    ],
)
def test_only_steps_of_one_new_row_a_sequence_within_the_limits_have_a_rung(
    ladder: FewRungs | NearRungs, steps: list[SequenceStep], has_rung: bool
) -> None:
    assert (ladder.rung_of(StepPlan(tuple(steps))) is not None) == has_rung
