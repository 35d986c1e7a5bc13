"""Does a part that is slow or hangs hold up what other parts have?

Of a store in tiers: the slower tier hangs, or is slow, at some of its calls. What the faster one
has must come, and what is stored must be taken, before the deadline; once the tier works again all
is right. A call of a tier that hangs cannot be broken off; only its callers may be spared.
"""

from __future__ import annotations

import random
import time

from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.stores.retention import Limits
from deepinfer_core.stores.tiered.store import TieredStore
from deepinfer_core.stores.tiered.tiers import Tier
from deepinfer_core.testing.faulty_store import FaultyStore
from deepinfer_core.testing.store_faults.blocks import loaded, numbered
from deepinfer_core.testing.store_faults.damage import FaultReport
from deepinfer_core.testing.store_faults.targets import CAPACITY_BYTES
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER

__all__ = ["slow_tiers"]

_CALL_S = 5.0
"""That a call may take which waits for nobody: machines are busy, hung tiers hang for good."""

_SLOW_S = 2e-3


def slow_tiers(count: int, seed: int) -> FaultReport:
    """Let the lower tier hang or be slow so many times.

    Raises:
        AssertionError: somebody waited, or a block did not come.
        WrongBytes: something else came back than had been stored.
    """
    draw, report = random.Random(seed), FaultReport()
    limits = Limits(capacity_bytes=CAPACITY_BYTES, retention_s={"agent": 1e6}, young_s=0.0)
    lower = FaultyStore(MemoryStore(limits))
    store = TieredStore(
        [
            Tier(name="upper", store=MemoryStore(limits)),
            Tier(name="lower", store=lower),
        ]
    )
    store.open([BLOCKS])
    try:
        for number in range(count):
            kind = draw.choice(["hung", "slow"])
            _one(store, lower, number, kind == "hung", draw)
            report.injected[kind] += 1
            report.outcomes["hit"] += 1
            if number % 64 == 63:
                store.drop()
    finally:
        lower.gate.set()
        store.close()
    return report


def _one(
    store: TieredStore, lower: FaultyStore, number: int, hangs: bool, draw: random.Random
) -> None:
    items = [numbered(3 * number + one) for one in range(3)]
    lower.delay_s = (lambda: 0.0) if hangs else (lambda: _SLOW_S)
    lower.gated = tuple(draw.sample(["store", "find", "load", "touch"], draw.randint(1, 4)))
    if hangs:
        lower.gate.clear()
    began_s = time.monotonic()
    outcomes = store.store("blocks", items, deadline_s=began_s + _CALL_S)
    assert {one.status for one in outcomes} == {"stored"}, outcomes
    assert {one.status for one in loaded(store, items)} == {"hit"}
    assert time.monotonic() - began_s < _CALL_S, "somebody waited for a tier that hangs"
    lower.gate.set()
    lower.delay_s = lambda: 0.0
    assert store.find("blocks", [items[0].key], deadline_s=FOREVER)[0].status == "hit"
    assert {one.status for one in loaded(store, items)} == {"hit"}
