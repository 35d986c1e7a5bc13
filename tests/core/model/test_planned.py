"""Does every step run by a plan of its own size?"""

import pytest
from deepinfer_core.interfaces.component import Plan
from deepinfer_core.model.operators import Planned


@pytest.mark.parametrize(
    ("rows", "most"), [(0, 1), (1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (4096, 4096), (4097, 8192)]
)
def test_a_plan_is_for_the_next_power_of_two(rows: int, most: int) -> None:
    assert Planned(lambda max_rows: Plan(max_rows=max_rows))(rows).max_rows == most


def test_a_small_step_behind_a_large_one_has_a_small_plan() -> None:
    # Tiles are chosen by a plan's rows: those of a prompt would waste most of a decode step.
    planned = Planned(lambda max_rows: Plan(max_rows=max_rows))
    assert [planned(rows).max_rows for rows in (4096, 1, 64)] == [4096, 1, 64]


def test_a_plan_is_made_once() -> None:
    made: list[int] = []

    def make(max_rows: int) -> Plan:
        made.append(max_rows)
        return Plan(max_rows=max_rows)

    planned = Planned(make)
    assert planned(3) is planned(4)
    assert planned(100) is not planned(3)
    assert made == [4, 128]
