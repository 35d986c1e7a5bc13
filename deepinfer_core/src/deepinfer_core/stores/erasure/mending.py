"""How are fragments made again that are missing, damaged or of another writer?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from deepinfer_core.interfaces.kv_store import Outcome, StoreItem
from deepinfer_core.stores.calls import is_late
from deepinfer_core.stores.erasure.child import ChildFailed
from deepinfer_core.stores.erasure.crowd import ask_all
from deepinfer_core.stores.erasure.fragments import Shape
from deepinfer_core.stores.erasure.gathering import Asked
from deepinfer_core.stores.erasure.means import GONE, Means
from deepinfer_core.stores.erasure.reading import AllFragments, Presence
from deepinfer_core.stores.erasure.writing import replace_fragment, write_frame

__all__ = ["Mender"]

_BLOCKS_AT_ONCE = 16
_KEYS_AT_ONCE = 1024


class Mender:
    """Looks after fragments during sweeps.

    Args:
        means: of the store.
    """

    def __init__(self, means: Means) -> None:
        self._means = means
        self._children, self._shapes, self._codec = means.children, means.shapes, means.codec
        self._patience, self._placing, self._pool = means.patience, means.placing, means.pool
        self._queue, self._counts = means.queue, means.counts
        self._cursors: dict[str, bytes] = dict.fromkeys(means.shapes, b"")

    def mend(self, deadline_s: float) -> None:
        """Look through one page of each group, then repair what the rate allows."""
        for group in self._shapes:
            if is_late(deadline_s):
                return
            self._scrub(group, deadline_s)
        seen, waiting = 0, len(self._queue)
        while seen < waiting and self._queue.has_budget() and not is_late(deadline_s):
            taken = self._queue.take(min(_BLOCKS_AT_ONCE, waiting - seen))
            if not taken:
                return
            seen += len(taken)
            shape = self._shapes[taken[0][0]]
            self._queue.spend(len(taken) * shape.count * shape.fragment_bytes)
            self._repair(shape, {key: visits for _, key, visits in taken}, deadline_s)

    def _scrub(self, group: str, deadline_s: float) -> None:
        """Find blocks that lack fragments, among the next ones in order of their keys."""
        after = self._cursors[group]
        pages = ask_all(
            self._children,
            "survey",
            _KEYS_AT_ONCE,
            lambda child: child.survey(group, after, _KEYS_AT_ONCE, deadline_s),
            min(deadline_s, self._patience.soon()),
        )
        found = [page for page in pages.values() if isinstance(page, list)]
        last = min((page[-1].key for page in found if len(page) == _KEYS_AT_ONCE), default=b"")
        keys = sorted({one.key for page in found for one in page if not last or one.key <= last})
        self._cursors[group] = last
        if not keys:
            return
        shape = self._shapes[group]
        every = _Everywhere(self._children, self._patience, shape, keys, self._placing)
        every.gather(shape.count, min(deadline_s, self._patience.soon()))
        every.finish()
        for place, key in enumerate(keys):
            lacking = every.lacking(place).values()
            if any(one.status == "miss" for one in lacking):
                is_urgent = len(every.having[place]) <= shape.data
                self._queue.add(group, key, is_urgent=is_urgent)

    def _repair(self, shape: Shape, visits: Mapping[bytes, int], deadline_s: float) -> None:
        keys = list(visits)
        frames = self._pool.lease(shape, len(keys))
        try:
            reads = AllFragments(
                self._children, self._patience, shape, keys, self._placing, frames, _unheard
            )
            reads.gather(shape.count, min(deadline_s, self._patience.soon()))
            reads.finish()
            for place, key in enumerate(keys):
                best = reads.best(place)
                if best is not None:
                    self._complete(shape, reads, place, key, *best)
                elif all(one.status in GONE for one in reads.failed(place).values()):
                    self._give_up(shape, key, visits[key])
        finally:
            frames.release()

    def _complete(
        self,
        shape: Shape,
        reads: AllFragments,
        place: int,
        key: bytes,
        stripe: bytes,
        rows: dict[int, int],
    ) -> None:
        """Write the fragments that are missing, and replace those of another stripe."""
        block = bytearray(shape.group.block_bytes)
        if reads.assemble(place, self._codec, block).status != "hit":
            return
        facts = reads.facts(place, rows)
        item = StoreItem(
            key=key,
            data=block,
            namespace=facts.namespace,
            depth=facts.depth,
            retention=facts.retention,
        )
        here = set(reads.stripes(place)[stripe].values())
        lacking = [
            child
            for child in range(len(self._children))
            if self._placing.pieces(key)[child] not in here
            and reads.failed(place).get(child, _OTHERS).status in GONE
        ]
        if not lacking:
            return
        frames = self._pool.lease(shape, 1)
        try:
            write_frame(shape, self._codec, item, frames, 0)
            for child in lacking:
                row = self._placing.pieces(key)[child]
                fragment = StoreItem(
                    key=key,
                    data=bytes(frames.fragments(0)[row]),
                    namespace=facts.namespace,
                    depth=facts.depth,
                    retention=facts.retention,
                )
                answers = ask_all(
                    [self._children[child]],
                    "repair",
                    1,
                    partial(replace_fragment, shape, fragment, soon := self._patience.soon()),
                    soon,
                )
                done = answers.get(0)
                is_done = not isinstance(done, ChildFailed) and done is True
                self._counts.add("repaired" if is_done else "not_repaired")
        finally:
            frames.release()

    def _give_up(self, shape: Shape, key: bytes, visits: int) -> None:
        """Remove what is left of a block that nobody can read, if it was so a sweep ago."""
        if not visits:
            self._queue.add(shape.group.name, key, visits=1)
            return
        ask_all(
            self._children,
            "discard",
            1,
            lambda child: child.discard(shape.group.name, [key], self._patience.soon()),
            self._patience.soon(),
        )
        self._counts.add("given_up")


_OTHERS = Outcome(status="corrupt", reason="a fragment of another stripe")


def _unheard(key: bytes, child: int, problem: Outcome) -> None:
    """A repair sees all of that itself."""


class _Everywhere(Presence):
    """Looks on every child."""

    def _is_enough(self, block: Asked) -> bool:
        return False

    def _could_be_enough(self, block: Asked) -> bool:
        return bool(block.pending or block.reserve)
