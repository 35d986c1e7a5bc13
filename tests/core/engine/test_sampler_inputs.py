"""Settings of the last step are used again for the same requests, and for no others."""

from dataclasses import replace
from typing import Any

import pytest
from deepinfer_core.engine.rows import RowRequest, RowSettings
from deepinfer_core.engine.sampler_inputs import SamplerInputs
from deepinfer_core.interfaces.sampler import SamplerRows
from deepinfer_core.reference.device import CpuDevice

SETTINGS = [RowSettings(seed=seed, temperature=1.0, top_p=0.5) for seed in (3, 4)]


def asked(position: int, **changes: Any) -> tuple[RowRequest, ...]:
    """Two rows at a position; changes are those of the second one."""
    first, second = (RowRequest(row, position, SETTINGS[row], None, (7,)) for row in (0, 1))
    return first, second._replace(**changes)


class Arriving(SamplerInputs):
    """Settings that are brought over as soon as they are packed."""

    def now(self, rows: tuple[RowRequest, ...]) -> SamplerRows:
        return self.rows(rows).arrive()[1]


@pytest.fixture
def inputs() -> Arriving:
    return Arriving(64, CpuDevice())


def test_the_same_requests_bring_new_positions_only(inputs: Arriving) -> None:
    before, after = inputs.now(asked(8)), inputs.now(asked(9))
    assert after.position_R.tolist() == [9, 9]
    assert before.position_R.tolist() == [8, 8]
    assert after.temperature_R is before.temperature_R
    assert after.allowed_RW is before.allowed_RW is not None


def test_settings_that_were_not_brought_over_yet_arrive_with_a_later_step(
    inputs: Arriving,
) -> None:
    first, second = inputs.rows(asked(8)), inputs.rows(asked(9))
    (_, after), (_, before) = second.arrive(), first.arrive()
    assert (before.position_R.tolist(), after.position_R.tolist()) == ([8, 8], [9, 9])
    assert after.seed_R is before.seed_R
    assert before.seed_R.tolist() == [3, 4]


def test_a_setting_that_changes_reaches_the_sampler(inputs: Arriving) -> None:
    inputs.now(asked(8))
    other = replace(SETTINGS[1], seed=5, temperature=0.0)
    after = inputs.now(asked(9, settings=other))
    assert after.seed_R.tolist() == [3, 5]
    assert after.temperature_R.tolist() == [1.0, 0.0]


def test_a_ban_that_ends_reaches_the_sampler(inputs: Arriving) -> None:
    before, after = inputs.now(asked(8)), inputs.now(asked(9, banned=()))
    assert before.allowed_RW is not None
    assert after.allowed_RW is not None
    assert before.allowed_RW[1].tolist() == [~(1 << 7), -1]
    assert after.allowed_RW[1].tolist() == [-1, -1]


def test_fewer_rows_bring_their_own_settings(inputs: Arriving) -> None:
    inputs.now(asked(8))
    assert inputs.now(asked(9)[1:]).seed_R.tolist() == [4]


def test_a_forced_token_is_forced_once(inputs: Arriving) -> None:
    steps = [asked(8), asked(9, forced=12), asked(10)]
    assert [inputs.now(rows).forced_R.tolist() for rows in steps] == [[-1, -1], [-1, 12], [-1, -1]]


def test_earlier_tokens_are_those_of_each_step(inputs: Arriving) -> None:
    steps = [asked(8), asked(9, seen=((5, 1),)), asked(10, seen=((5, 2),)), asked(11)]
    rules = [inputs.now(rows).rules for rows in steps]
    counts = [None if one is None else one.output_count_RN[1].tolist() for one in rules]
    assert counts == [None, [1], [2], None]
