"""An engine's end of a fetcher whose store does what a test says."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.channel.restarts import Restarts
from deepinfer_core.interfaces.kv_store import BlockGroup
from deepinfer_core.stores.fetcher.engine_end import FetcherTraffic
from deepinfer_core.stores.fetcher.options import TrafficOptions
from deepinfer_core.stores.traffic import Arrived, Ended, Finished, News, Wanted
from deepinfer_core.testing.contracts.kv_store_suite import block, key
from deepinfer_core.testing.store_groups import BLOCKS, STATES
from deepinfer_core.testing.unruly_store import resolved_unruly

NAMESPACE = b"n" * 32
WAIT_S = 60.0
"""Longer than anything takes on a busy machine."""


class Engine:
    """What an engine does with its end of the traffic."""

    def __init__(self, rules: Path, **settings: Any) -> None:
        self.rules = rules
        self.settings: dict[str, Any] = {"rules": str(rules)}
        sizes = {"arriving_bytes": 1 << 20, "departing_bytes": 1 << 20} | settings
        self.restarts = sizes.pop("restarts", Restarts(first_wait_s=0.01, most=50))
        self.settings |= sizes.pop("store", {})
        self.traffic = FetcherTraffic(
            resolved_unruly(**self.settings),
            [BLOCKS, STATES],
            TrafficOptions(**sizes),
            restarts=self.restarts,
        )
        self.seen: list[News] = []

    def rule(self, *rules: dict[str, object]) -> None:
        """How the store misbehaves from now on."""
        self.rules.with_suffix(".new").write_text(json.dumps(rules))
        self.rules.with_suffix(".new").replace(self.rules)

    def hand_over(self, name: object, places: Sequence[int], group: BlockGroup = BLOCKS) -> None:
        """Hand blocks of a chain over; the first of them needs none before it."""
        slots = self.traffic.empty_slots(group.name, len(places))
        assert len(slots) == len(places)
        for place, slot in zip(places, slots, strict=True):
            slot.view[:] = block((name, place), group)
        self.traffic.hand_over(
            [
                Finished(
                    slot,
                    key((name, place)),
                    NAMESPACE,
                    place,
                    "chat",
                    key((name, place - 1)) if place - 1 in places else b"",
                )
                for place, slot in zip(places, slots, strict=True)
            ]
        )

    def keep(self, name: object, places: Sequence[int], group: BlockGroup = BLOCKS) -> None:
        """Hand blocks of a chain over, and wait until they are stored."""
        before = sum(self.traffic.counts().written.values())
        self.hand_over(name, places, group)
        self.until(lambda: sum(self.traffic.counts().written.values()) == before + len(places))

    def want(self, name: object, count: int, **changes: Any) -> int:
        """Ask for a chain of blocks."""
        fields: dict[str, Any] = {
            "keys": tuple(key((name, place)) for place in range(count)),
            "retention": "chat",
            "group": "blocks",
            "state_group": "state",
            "match_s": WAIT_S,
            "fetch_s": WAIT_S,
        }
        return self.traffic.want(Wanted(**(fields | changes)))

    def news(self, ticket: int) -> list[News]:
        """All news of a ticket, once it has ended."""
        self.until(lambda: any(isinstance(one, Ended) for one in self.of(ticket)))
        return self.of(ticket)

    def of(self, ticket: int) -> list[News]:
        """News of a ticket so far."""
        self.seen += self.traffic.poll()
        return [one for one in self.seen if one.ticket == ticket]

    def ended(self, ticket: int) -> str:
        """How a ticket ended."""
        last = self.news(ticket)[-1]
        assert isinstance(last, Ended)
        return last.reason

    def until(self, is_so: Callable[[], object]) -> None:
        """Wait for something."""
        by_s = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < by_s
            self.traffic.wait(0.01)


def blocks_of(name: object, news: Sequence[News]) -> list[int]:
    """Places of the blocks that arrived, each checked against what was stored."""
    places: list[int] = []
    for one in news:
        if isinstance(one, Arrived) and not one.is_state:
            for place, slot in enumerate(one.slots, one.first):
                assert slot.view == block((name, place))
                places.append(place)
    return places


def states_of(name: object, news: Sequence[News]) -> list[int]:
    """Places of the states that arrived, each checked as well."""
    found = [one for one in news if isinstance(one, Arrived) and one.is_state]
    for one in found:
        assert [slot.view for slot in one.slots] == [block((name, one.first), STATES)]
    return [one.first for one in found]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """The file of the store's rules."""
    return tmp_path / "rules.json"


@pytest.fixture
def engines(rules: Path) -> Iterator[Callable[..., Engine]]:
    """Makes engines' ends, and closes them."""
    made: list[Engine] = []

    def make(**settings: Any) -> Engine:
        made.append(Engine(rules, **settings))
        return made[-1]

    yield make
    for one in made:
        one.rule()
        one.traffic.close()


@pytest.fixture
def engine(engines: Callable[..., Engine]) -> Engine:
    """One with a store in memory."""
    return engines()
