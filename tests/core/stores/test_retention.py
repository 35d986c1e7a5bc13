"""Do limits rank blocks and note uses as they should?"""

import pytest
from deepinfer_core.config.store_options import MemoryStoreOptions
from deepinfer_core.stores.retention import Limits, limits_of

LIMITS = Limits(
    capacity_bytes=1000,
    retention_s={"agent": 1600.0, "chat": 3200.0},
    age_step_s=60.0,
    refresh_ratio=1 / 16,
)


def test_older_steps_go_first_and_within_one_the_deepest() -> None:
    uses = [(0.0, 0), (59.0, 1), (60.0, 5), (61.0, 4), (119.0, 0), (120.0, 9)]
    order = sorted(uses, key=lambda use: LIMITS.rank(*use))
    assert order == [(59.0, 1), (0.0, 0), (60.0, 5), (61.0, 4), (119.0, 0), (120.0, 9)]


@pytest.mark.parametrize(("passed_s", "due"), [(0.0, False), (99.9, False), (100.0, True)])
def test_a_use_is_noted_once_a_sixteenth_of_the_time(passed_s: float, due: bool) -> None:
    assert LIMITS.is_use_due(500.0, "agent", 500.0 + passed_s) is due
    assert not LIMITS.is_use_due(500.0, "chat", 500.0 + passed_s)


def test_the_longer_class_wins_in_either_order() -> None:
    assert LIMITS.longer("agent", "chat") == LIMITS.longer("chat", "agent") == "chat"


def test_options_become_limits() -> None:
    options = MemoryStoreOptions(capacity_bytes=1000, quota_bytes=10, young_s=1.0, low_ratio=0.5)
    limits = limits_of(options, age_step_s=3600.0, refresh_ratio=0.5)
    assert (limits.capacity_bytes, limits.quota_bytes, limits.young_s) == (1000, 10, 1.0)
    assert (limits.high_bytes, limits.low_bytes) == (900, 500)
    assert limits.retention_s == {"agent": 259_200.0, "chat": 604_800.0, "state": 180.0}
    assert (limits.age_step_s, limits.refresh_ratio) == (3600.0, 0.5)
