"""How are the blocks of a call stored, some at a time, when others may store the same ones?

Within a process two calls never store one block at once. Another process may: then some children
keep its fragments and some ours, and they only fit together if both computed the same bytes. Where
children had fragments before and others had not, those are looked at: of a block that nobody can
read they are replaced, though children that are not there may have more of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from deepinfer_core.interfaces.kv_store import Outcome, StoreItem
from deepinfer_core.stores.calls import EXISTS, LATE, STORED, is_late, seconds_until
from deepinfer_core.stores.erasure.fragments import Shape, read_piece
from deepinfer_core.stores.erasure.frames import Frames
from deepinfer_core.stores.erasure.means import GONE, Means
from deepinfer_core.stores.erasure.reading import AllFragments
from deepinfer_core.stores.erasure.repairs import Haste
from deepinfer_core.stores.erasure.writing import FragmentWrites, write_frame

__all__ = ["BlockWriter"]

_ANOTHER = Outcome(status="unavailable", reason="another writer is storing the block")


_PATIENCE = 10.0
"""Nobody waits for a write: a child is late ten times later than in reading."""


class BlockWriter:
    """Stores blocks.

    Args:
        means: of the store.
    """

    def __init__(self, means: Means) -> None:
        self._means = means
        late_s = min(means.patience.hedge_s * _PATIENCE, means.patience.most_s)
        self._patience = replace(means.patience, least_s=late_s, hedge_s=late_s)
        self._changed = threading.Condition()
        self._being_stored: set[tuple[str, bytes]] = set()

    def store(self, group: str, items: Sequence[StoreItem], deadline_s: float) -> list[Outcome]:
        """Store blocks, up to the first that is not kept; its outcome is that of the rest."""
        outcomes: list[Outcome] = []
        while len(outcomes) < len(items):
            some = items[len(outcomes) : len(outcomes) + self._means.window_blocks]
            with self._alone(group, some, deadline_s) as is_alone:
                late = is_late(deadline_s) or not is_alone
                done = [LATE] if late else self._store_some(group, some, deadline_s)
            outcomes += done
            if done[-1].status not in ("stored", "exists"):
                break
        return outcomes + outcomes[-1:] * (len(items) - len(outcomes))

    def _store_some(
        self, group: str, items: Sequence[StoreItem], deadline_s: float
    ) -> list[Outcome]:
        means, shape = self._means, self._means.shapes[group]
        frames = means.pool.lease(shape, len(items))
        try:
            for place, item in enumerate(items):
                write_frame(shape, means.codec, item, frames, place)
            writes = FragmentWrites(
                means.children,
                self._patience,
                shape,
                items,
                means.placing,
                frames,
                partial(means.queue.add, group),
            )
            try:
                writes.gather(len(means.children), deadline_s)
                outcomes = self._judged(shape, items, writes, frames)
                kept = sum(one.status in ("stored", "exists") for one in outcomes)
                writes.keep(kept)
            finally:
                writes.finish()
        finally:
            frames.release()
        means.counts.add("abandoned", len(items) - kept)
        return outcomes

    def _judged(
        self, shape: Shape, items: Sequence[StoreItem], writes: FragmentWrites, frames: Frames
    ) -> list[Outcome]:
        """Outcomes, up to and with the first block that is not kept."""
        outcomes: list[Outcome] = []
        for place, item in enumerate(items):
            stored, existing = writes.stored[place], writes.existing[place]
            if stored and existing:
                outcome = self._beside_others(shape, item, place, writes, frames)
            elif len(stored) + len(existing) < shape.data:
                outcome = writes.failure(place)
            else:
                outcome = STORED if stored else EXISTS
            outcomes.append(outcome)
            if outcome.status not in ("stored", "exists"):
                break
        return outcomes

    def _beside_others(
        self,
        shape: Shape,
        item: StoreItem,
        place: int,
        writes: FragmentWrites,
        frames: Frames,
    ) -> Outcome:
        """Of a block of which some children had fragments, and others had not."""
        means = self._means
        mine = read_piece(frames.fragments(place)[0], shape, item.key)
        others = means.pool.lease(shape, 1)
        try:
            reads = AllFragments(
                means.children,
                means.patience,
                shape,
                [item.key],
                means.placing,
                others,
                partial(means.notice, shape.group.name),
            )
            reads.gather(shape.count, means.patience.soon())
            reads.finish()
        finally:
            others.release()
        assert not isinstance(mine, Outcome)
        rows = reads.stripes(0).get(mine.stripe, {})
        ours = {means.placing.child(item.key, row) for row in rows.values()}
        found = {stripe: len(rows) for stripe, rows in reads.stripes(0).items()}
        fitting = found.pop(mine.stripe, 0)
        if found:
            means.queue.add(shape.group.name, item.key, Haste.USED)
        if fitting >= shape.data:
            return STORED if fitting - len(writes.stored[place]) < shape.data else EXISTS
        if max(found.values(), default=0) >= shape.data:
            writes.yield_to_others(place)
            return EXISTS
        useless = [
            child
            for child in sorted(writes.existing[place] - ours)
            if (problem := reads.failed(0).get(child)) is None or problem.status in GONE
        ]
        if fitting + len(useless) < shape.data:
            return _ANOTHER
        writes.replace(place, useless)
        replaced = writes.stored[place].intersection(useless)
        return STORED if fitting + len(replaced) >= shape.data else _ANOTHER

    @contextmanager
    def _alone(self, group: str, items: Sequence[StoreItem], deadline_s: float) -> Iterator[bool]:
        """Wait until no other call stores one of these blocks; whether that came in time."""
        names = {(group, item.key) for item in items}
        with self._changed:
            is_alone = self._changed.wait_for(
                lambda: self._being_stored.isdisjoint(names), seconds_until(deadline_s)
            )
            if is_alone:
                self._being_stored |= names
        try:
            yield is_alone
        finally:
            if is_alone:
                with self._changed:
                    self._being_stored -= names
                    self._changed.notify_all()
