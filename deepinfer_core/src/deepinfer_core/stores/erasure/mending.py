"""How are fragments made again that are missing, damaged or of another writer?

Repairs read all that is left of a block and write what is missing, as many bytes a second as they
may. Of a block that cannot be put together any more the rest is removed, once it was found so
twice: it may just be being written.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from deepinfer_core.interfaces.kv_store import Outcome, StoreItem
from deepinfer_core.stores.calls import is_late
from deepinfer_core.stores.erasure.budget import Budget
from deepinfer_core.stores.erasure.child import ChildFailed
from deepinfer_core.stores.erasure.crowd import ask_all
from deepinfer_core.stores.erasure.fragments import Shape
from deepinfer_core.stores.erasure.means import GONE, Means
from deepinfer_core.stores.erasure.reading import AllFragments
from deepinfer_core.stores.erasure.repairs import Haste
from deepinfer_core.stores.erasure.scrubbing import unheard
from deepinfer_core.stores.erasure.writing import replace_fragment, write_frame

__all__ = ["Mender"]

_BLOCKS_AT_ONCE = 16


class Mender:
    """Makes blocks whole during sweeps.

    Args:
        means: of the store.
        bytes_per_s: that it may read and write.
    """

    def __init__(self, means: Means, bytes_per_s: float) -> None:
        self._means, self._budget = means, Budget(bytes_per_s)
        self._children, self._codec = means.children, means.codec
        self._patience, self._placing, self._pool = means.patience, means.placing, means.pool
        self._queue, self._counts = means.queue, means.counts

    def mend(self, deadline_s: float) -> None:
        """Repair what waits, each block once, as far as the rate allows."""
        seen, waiting = 0, len(self._queue)
        while seen < waiting and self._budget.has_some() and not is_late(deadline_s):
            taken = self._queue.take(min(_BLOCKS_AT_ONCE, waiting - seen))
            if not taken:
                return
            seen += len(taken)
            shape = self._means.shapes[taken[0][0]]
            self._budget.spend(len(taken) * shape.count * shape.fragment_bytes)
            self._means.traffic.make_way()
            self._repair(shape, {key: visits for _, key, visits in taken}, deadline_s)

    def _repair(self, shape: Shape, visits: Mapping[bytes, int], deadline_s: float) -> None:
        keys = list(visits)
        frames = self._pool.lease(shape, len(keys))
        try:
            reads = AllFragments(
                self._children,
                self._patience,
                shape,
                keys,
                self._placing,
                frames,
                unheard,
                is_use=False,
            )
            reads.gather(shape.count, min(deadline_s, self._patience.soon()))
            reads.finish()
            for place, key in enumerate(keys):
                for child, problem in reads.failed(place).items():
                    self._means.count_bad(child, problem)
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
            self._queue.add(shape.group.name, key, Haste.SEEN, visits=1)
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
