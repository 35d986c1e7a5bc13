"""Is what was handed over stored in order, and what follows on a failure dropped and counted?"""

from collections import Counter

from deepinfer_core.stores.fetcher.messages import KeepItem, Written
from deepinfer_core.stores.fetcher.write_queue import Batch, WriteQueue

TENANT, OTHER = b"t" * 32, b"o" * 32


def chain_key(namespace: bytes, depth: int) -> bytes:
    return namespace[:31] + bytes([depth % 256])


class Bench:
    """A queue for batches of four blocks, none older than ten seconds."""

    def __init__(self) -> None:
        self.told: list[Written] = []
        self.queue = WriteQueue(age_s=10.0, batch_blocks=4, tell=self.told.append)
        self.next_number = 0

    def put(self, *depths: int, namespace: bytes = TENANT, now_s: float = 0.0) -> None:
        """Hand blocks over, whose slots have the next numbers."""
        items = []
        for depth in depths:
            key, parent = chain_key(namespace, depth), chain_key(namespace, depth - 1)
            items.append(KeepItem(self.next_number, key, namespace, depth, "", parent))
            self.next_number += 1
        self.queue.put("blocks", items, now_s)

    def take(self) -> Batch:
        """The next batch."""
        batch = self.queue.take()
        assert batch is not None
        return batch

    def released(self) -> dict[int, str]:
        """What became of slots; those of one message have one outcome here."""
        found: dict[int, str] = {}
        for one in self.told:
            assert sum(one.outcomes.values()) == len(one.numbers)
            found |= dict.fromkeys(one.numbers, "+".join(sorted(one.outcomes)))
        return found


def numbers(batch: Batch) -> list[int]:
    return [one.item.number for one in batch.blocks]


def test_blocks_are_stored_in_the_order_in_which_they_came() -> None:
    bench = Bench()
    bench.put(0, 1, 2, 3, 4)
    bench.put(7)
    first = bench.take()
    assert numbers(first) == [0, 1, 2, 3]
    assert len(bench.queue) == 6
    bench.queue.done(first, ["stored", "exists", "stored", "stored"])
    assert len(bench.queue) == 2
    assert Counter(bench.told[0].outcomes) == {"stored": 3, "exists": 1}
    assert numbers(bench.take()) == [4, 5]
    assert bench.queue.take() is None


def test_groups_are_not_mixed_in_a_call() -> None:
    bench = Bench()
    bench.put(0)
    bench.queue.put("state", [KeepItem(9, b"k" * 32, TENANT, 0, "", b"")], 0.0)
    bench.put(1)
    assert [(one.group, numbers(one)) for one in (bench.take(), bench.take(), bench.take())] == [
        ("blocks", [0]),
        ("state", [9]),
        ("blocks", [1]),
    ]


def test_what_follows_on_a_block_that_was_not_stored_is_dropped() -> None:
    bench = Bench()
    bench.put(0, 1, 2, 3, 4, 5)
    bench.queue.done(bench.take(), ["stored", "timeout", "timeout", "timeout"])
    assert bench.queue.take() is None
    assert bench.released() == {
        0: "stored+timeout",
        1: "stored+timeout",
        2: "stored+timeout",
        3: "stored+timeout",
        4: "timeout",
        5: "timeout",
    }
    assert sum((Counter(one.outcomes) for one in bench.told), Counter()) == {
        "stored": 1,
        "timeout": 5,
    }


def test_other_chains_behind_a_failure_are_tried_again() -> None:
    bench = Bench()
    bench.put(0, 1)
    bench.put(0, namespace=OTHER)
    bench.put(5, 7)
    bench.queue.done(bench.take(), ["unavailable"] * 4)
    assert bench.released() == {0: "unavailable", 1: "unavailable"}
    again = bench.take()
    assert numbers(again) == [2, 3, 4]
    bench.queue.done(again, ["stored", "unavailable", "unavailable"])
    assert numbers(bench.take()) == [4]  # depth 7 does not follow on depth 5


def test_what_follows_on_a_block_without_the_one_before_it_is_dropped_and_others_are_not() -> None:
    bench = Bench()
    bench.put(3, 4)
    bench.put(0, 1, 2, namespace=OTHER)
    bench.put(5)
    bench.queue.done(bench.take(), ["orphan", "orphan", "stored", "exists"])
    assert bench.released() == dict.fromkeys(range(4), "exists+orphan+stored")
    assert numbers(bench.take()) == [4, 5]


def test_chains_of_one_tenant_are_told_apart() -> None:
    """A block of the next depth may be one of another text."""
    bench = Bench()
    bench.put(0, 1)
    bench.queue.put("blocks", [KeepItem(7, b"z" * 32, TENANT, 2, "", b"y" * 32)], 0.0)
    bench.queue.done(bench.take(), ["timeout"] * 3)
    assert numbers(bench.take()) == [7]


def test_a_block_that_was_corrupt_or_unknown_to_the_store_counts_as_unavailable() -> None:
    bench = Bench()
    bench.put(0)
    bench.queue.done(bench.take(), ["version"])
    assert bench.released() == {0: "unavailable"}


def test_what_has_waited_for_too_long_is_dropped() -> None:
    bench = Bench()
    bench.put(0, 1, now_s=0.0)
    bench.put(5, now_s=1.0)
    bench.queue.expire(9.9)
    assert bench.told == []
    bench.queue.expire(10.0)
    assert bench.released() == {0: "timeout", 1: "timeout"}
    assert numbers(bench.take()) == [2]
    bench.queue.expire(99.0)  # what is being stored is not dropped
    assert len(bench.queue) == 1
