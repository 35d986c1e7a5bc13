"""Whatever happens to children, is a block ever wrong; and with at most two bad ones, ever gone?"""

import random
from collections.abc import Callable
from typing import Any

import pytest
from deepinfer_core.stores.erasure.gathering import Patience
from deepinfer_core.stores.erasure.repairs import Haste
from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.testing.contracts.kv_store_suite import item, key
from deepinfer_core.testing.faulty_store import flip_in_memory
from deepinfer_core.testing.store_groups import FOREVER

STEPS = 20


def flip_somewhere(draw: random.Random, child: Any, name: object) -> None:
    """Anywhere in the record of a fragment, if the child has one."""
    store = child.inner
    assert isinstance(store, MemoryStore)
    group = store.groups["blocks"]
    if store.describe("blocks", [key(name)], deadline_s=FOREVER) != [None]:
        flip_in_memory(store, group, key(name), draw.randrange(8 * (192 + group.block_bytes)))


def spoil_with(draw: random.Random) -> Any:
    place, bit = draw.randrange(549), draw.randrange(8)

    def spoil(data: Any) -> None:
        data[place] ^= 1 << bit

    return spoil


def make_bad(draw: random.Random, child: Any, names: list[object], *, may_hang: bool) -> None:
    fault = draw.choice(["dead", "wrong", "damaged", "empty", *["hung"] * may_hang])
    if fault == "dead":
        child.is_dead = True
    elif fault == "wrong":
        child.spoil = spoil_with(draw)
    elif fault == "hung":
        child.gate.clear()
    elif fault == "damaged":
        for name in names:
            flip_somewhere(draw, child, name)
    else:
        child.inner.drop()


def make_good(child: Any) -> None:
    child.is_dead, child.spoil = False, None
    child.gate.set()


@pytest.mark.parametrize("seed", range(3))
def test_with_two_bad_children_nothing_is_lost_and_with_more_nothing_is_wrong(
    make: Callable[..., Any], seed: int
) -> None:
    """Children go bad two at a time, are mended and swept, and now and then three are bad.

    With three that hang, each call would end only when they count as unavailable: none of three is.
    """
    twelve = make(patience=Patience(least_s=0.001, hedge_s=0.005, most_s=1.0))
    draw = random.Random(f"random faults, {seed}")
    stored: list[object] = []
    for step in range(STEPS):
        bad = draw.sample(twelve.children, draw.choice([0, 1, 2, 2, 2, 3]))
        for child in bad:
            make_bad(draw, child, stored, may_hang=len(bad) <= 2)
        name = (seed, step)
        (status,) = twelve.write(item(name))
        if len(bad) <= 2:
            assert status == "stored"
        if status == "stored":
            stored.append(name)
        asked = draw.sample(stored, min(len(stored), 8))
        statuses = twelve.read(*asked)
        if len(bad) <= 2:
            assert statuses == ["hit"] * len(asked)
        for child in bad:
            make_good(child)
        twelve.up()
        means = twelve.store._opened.means
        twelve.until(lambda m=means: not any(one._in_hand for one in m.children))
        for one in stored:  # a scrub sees what is missing, and readers what is damaged
            means.queue.add("blocks", key(one), Haste.SEEN)
        twelve.store.sweep(deadline_s=FOREVER)
        if len(bad) > 2:
            stored = [one for one in stored if twelve.read(one) == ["hit"]]
            twelve.store.sweep(deadline_s=FOREVER)
            twelve.store.sweep(deadline_s=FOREVER)
