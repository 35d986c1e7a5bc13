"""When is a block kept whose fragments were given to many children?

With k + 1 fragments kept it is; what is missing is made up for later. With exactly k it is kept
too, and is the first to be repaired: fewer children may have been there. Below that nothing of it
stays. Children that are late are not waited for once there is enough; what becomes of their
fragments is heard when they answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from deepinfer_core.interfaces.kv_store import Outcome, StoreItem
from deepinfer_core.stores.erasure.asking import Asked, Call
from deepinfer_core.stores.erasure.child import Child, ChildFailed
from deepinfer_core.stores.erasure.codec import Codec
from deepinfer_core.stores.erasure.crowd import ask_all, summed_up
from deepinfer_core.stores.erasure.fragments import Shape
from deepinfer_core.stores.erasure.frames import Frames
from deepinfer_core.stores.erasure.gathering import Gathering, Patience
from deepinfer_core.stores.erasure.placing import Placing
from deepinfer_core.stores.erasure.repairs import Haste

__all__ = ["FragmentWrites", "replace_fragment", "write_frame"]


def write_frame(shape: Shape, codec: Codec, item: StoreItem, frames: Frames, place: int) -> None:
    """Cut a block into fragments."""
    pieces_NF = frames.pieces(place)
    data = np.frombuffer(item.data, np.uint8)
    whole_bytes = shape.data * shape.piece_bytes
    if len(data) != whole_bytes:
        data = np.concatenate([data, np.zeros(whole_bytes - len(data), np.uint8)])
    pieces_NF[: shape.data] = data.reshape(shape.data, -1)
    codec.encode(pieces_NF)
    shape.write_headers(item, frames.fragments(place))


def replace_fragment(shape: Shape, fragment: StoreItem, deadline_s: float, child: Child) -> bool:
    """Store a fragment in place of what is there, if anything; whether that was done."""
    group = shape.group.name
    (outcome,) = child.store.store(group, [fragment], deadline_s=deadline_s)
    if outcome.status == "exists":
        child.discard(group, [fragment.key], deadline_s)
        (outcome,) = child.store.store(group, [fragment], deadline_s=deadline_s)
    return outcome.status == "stored"


class FragmentWrites(Gathering):
    """Stores the fragments of blocks, in order of their chain.

    Args:
        children, patience: as of ``Gathering``.
        shape: of the blocks.
        items: the blocks.
        placing: who has which fragment.
        frames: their fragments.
        incomplete: is told the keys of blocks that lack fragments, and how soon to repair them.

    Attributes:
        stored: for each block the children that keep its fragment from now on.
        existing: for each block the children that had one before.
    """

    kind = "store"

    def __init__(
        self,
        children: Sequence[Child],
        patience: Patience,
        shape: Shape,
        items: Sequence[StoreItem],
        placing: Placing,
        frames: Frames,
        incomplete: Callable[[bytes, Haste], None],
    ) -> None:
        keys = [item.key for item in items]
        super().__init__(children, patience, placing.orders(keys), frames)
        self._shape, self._items, self._memory = shape, items, frames
        self._pieces = [placing.pieces(key) for key in keys]
        self._incomplete = incomplete
        self._kept = len(items)
        self.stored: list[set[int]] = [set() for _ in items]
        self.existing: list[set[int]] = [set() for _ in items]

    def failure(self, place: int) -> Outcome:
        """Why a block is not kept."""
        return summed_up(list(self._blocks[place].failed.values()), len(self._children))

    def failed(self, place: int) -> dict[int, Outcome]:
        """By child, why it does not keep its fragment of a block."""
        return self._blocks[place].failed

    def keep(self, count: int) -> None:
        """Say how many leading blocks are kept; of the others nothing may stay."""
        self._kept = count
        for place in range(count):
            lacking = len(self._children) - self._had(place)
            if lacking > len(self._blocks[place].pending):
                is_in_danger = self._had(place) <= self._shape.data
                haste = Haste.IN_DANGER if is_in_danger else Haste.USED
                self._incomplete(self._items[place].key, haste)
        for child in range(len(self._children)):
            self._take_back(child, range(count, len(self._items)))

    def yield_to_others(self, place: int) -> None:
        """Take back what was stored of a block that another writer keeps."""
        for child in sorted(self.stored[place]):
            self._take_back(child, [place])

    def replace(self, place: int, numbers: Sequence[int]) -> None:
        """Put fragments of a block in place of others; ``stored`` says which children did it."""
        soon = self._patience.soon()
        # Copies: a child that is late may still look at them when the memory is in other use.
        fragments = {
            self._children[number]: replace(
                fragment := self._fragment(place, number), data=bytes(fragment.data)
            )
            for number in numbers
        }
        found = ask_all(
            list(fragments),
            "repair",
            1,
            lambda child: replace_fragment(self._shape, fragments[child], soon, child),
            soon,
        )
        done = {numbers[index] for index, answer in found.items() if answer is True}
        self.stored[place] |= done
        self.existing[place] -= done

    def _had(self, place: int) -> int:
        return len(self.stored[place]) + len(self.existing[place])

    def _take_back(self, child: int, places: Sequence[int]) -> None:
        """Have fragments removed that this call has stored."""
        keys = [self._items[place].key for place in places if child in self.stored[place]]
        group, deadline_s = self._shape.group.name, self._patience.soon()
        if keys:
            self._children[child].ask(
                "discard",
                len(keys),
                lambda asked: asked.discard(group, keys, deadline_s),
                lambda answer: None,
            )

    def _make_call(
        self, asked: Child, child: int, places: Sequence[int], deadline_s: float
    ) -> list[Outcome]:
        fragments = [self._fragment(place, child) for place in places]
        return asked.store.store(self._shape.group.name, fragments, deadline_s=deadline_s)

    def _fragment(self, place: int, child: int) -> StoreItem:
        item = self._items[place]
        return StoreItem(
            key=item.key,
            data=self._memory.fragments(place)[self._pieces[place][child]],
            namespace=item.namespace,
            depth=item.depth,
            retention=item.retention,
        )

    def _take(self, child: int, place: int, outcome: Outcome) -> Outcome | None:
        (self.stored if outcome.status == "stored" else self.existing)[place].add(child)
        return None

    def _is_enough(self, block: Asked) -> bool:
        """Nothing is until those that are not late have answered."""
        return self._had(block.place) > self._shape.data and all(map(self.is_late, block.pending))

    def _could_be_enough(self, block: Asked) -> bool:
        return bool(block.pending) and (
            self._had(block.place) + len(block.pending) >= self._shape.data
        )

    def _answered_late(self, call: Call, outcomes: list[Outcome] | ChildFailed) -> None:
        if isinstance(outcomes, ChildFailed):
            outcomes = []
        statuses = [one.status for one in outcomes] or ["unavailable"] * len(call.places)
        for place, status in zip(call.places, statuses, strict=True):
            if status == "stored":
                self.stored[place].add(call.child)
            elif status != "exists" and place < self._kept:
                self._incomplete(self._items[place].key, Haste.USED)
        self._take_back(call.child, [place for place in call.places if place >= self._kept])
