"""How are blocks put together from the fragments that come first?

Every fragment is checked by its own checksum before it is used, and only fragments of one stripe
are put together. A block of which a piece had to be computed is checked once more as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from deepinfer_core.interfaces.kv_store import Outcome
from deepinfer_core.interfaces.kv_upkeep import BlockFacts
from deepinfer_core.stores.calls import HIT
from deepinfer_core.stores.erasure.asking import Asked, Call
from deepinfer_core.stores.erasure.child import Child, ChildFailed
from deepinfer_core.stores.erasure.codec import Codec
from deepinfer_core.stores.erasure.crowd import summed_up
from deepinfer_core.stores.erasure.fragments import Shape, facts_of, is_block_whole, read_piece
from deepinfer_core.stores.erasure.frames import Frames
from deepinfer_core.stores.erasure.gathering import Gathering, Patience
from deepinfer_core.stores.erasure.placing import Placing

__all__ = ["AllFragments", "FragmentReads", "Presence"]

_SILENT = ("timeout", "unavailable")

_TWICE = Outcome(status="corrupt", reason="a fragment lies in two children")
_MIXED = Outcome(status="corrupt", reason="fragments of several writers, not enough of any")
_WRONG = Outcome(status="corrupt", reason="the block that was computed is not what was stored")


class Presence(Gathering):
    """Looks which blocks have enough fragments.

    Args:
        children, patience: as of ``Gathering``.
        shape: of the blocks.
        keys: of the blocks.
        placing: who has which fragment.
    """

    kind = "find"

    def __init__(
        self,
        children: Sequence[Child],
        patience: Patience,
        shape: Shape,
        keys: Sequence[bytes],
        placing: Placing,
    ) -> None:
        super().__init__(children, patience, placing.orders(keys))
        self._shape, self._keys = shape, keys
        self.having: list[set[int]] = [set() for _ in keys]

    def outcome(self, place: int) -> Outcome:
        """Of one block, when all has been gathered."""
        if len(self.having[place]) >= self._shape.data:
            return HIT
        return summed_up(list(self._blocks[place].failed.values()), self._shape.parity)

    def lacking(self, place: int) -> dict[int, Outcome]:
        """By child, why it has no fragment of a block."""
        return self._blocks[place].failed

    def _make_call(
        self, asked: Child, child: int, places: Sequence[int], deadline_s: float
    ) -> list[Outcome]:
        keys = [self._keys[place] for place in places]
        return asked.store.find(self._shape.group.name, keys, deadline_s=deadline_s)

    def _take(self, child: int, place: int, outcome: Outcome) -> Outcome | None:
        self.having[place].add(child)
        return None

    def _is_enough(self, block: Asked) -> bool:
        return len(self.having[block.place]) >= self._shape.data

    def _could_be_enough(self, block: Asked) -> bool:
        coming = len(block.pending) + len(block.reserve)
        return len(self.having[block.place]) + coming >= self._shape.data

    def _answered_late(self, call: Call, outcomes: list[Outcome] | ChildFailed) -> None:
        """It is too late to be of use."""


class FragmentReads(Gathering):
    """Loads fragments of blocks, and puts them together.

    Args:
        children, patience: as of ``Gathering``.
        shape: of the blocks.
        keys: of the blocks.
        placing: who has which fragment.
        frames: memory for all fragments of these blocks.
        noticed: is told what is wrong with fragments: the key, the child, its outcome, and whether
            there are enough others to read the block.
        is_use: whether children take it for a use.
    """

    def __init__(
        self,
        children: Sequence[Child],
        patience: Patience,
        shape: Shape,
        keys: Sequence[bytes],
        placing: Placing,
        frames: Frames,
        noticed: Callable[[bytes, int, Outcome, bool], None],
        *,
        is_use: bool = True,
    ) -> None:
        super().__init__(children, patience, placing.orders(keys), frames)
        self._shape, self._keys, self._memory = shape, keys, frames
        self._noticed, self._is_use = noticed, is_use
        self._pieces = [placing.pieces(key) for key in keys]
        self._stripes: list[dict[bytes, dict[int, int]]] = [{} for _ in keys]
        self._most = [0] * len(keys)

    def stripes(self, place: int) -> dict[bytes, dict[int, int]]:
        """Of one block, by stripe: the row of each piece that is there."""
        return self._stripes[place]

    def best(self, place: int) -> tuple[bytes, dict[int, int]] | None:
        """The stripe of a block that has enough pieces, and as many of them, data first."""
        for stripe, rows in self._stripes[place].items():
            if len(rows) >= self._shape.data:
                return stripe, {number: rows[number] for number in sorted(rows)[: self._shape.data]}
        return None

    def failed(self, place: int) -> dict[int, Outcome]:
        """By child, why it had no good fragment of a block."""
        return self._blocks[place].failed

    def tell(self) -> None:
        """Tell what is wrong with fragments, when all has been gathered."""
        for block in self._blocks:
            for child, problem in block.failed.items():
                if child >= 0:
                    is_enough = self._is_enough(block)
                    self._noticed(self._keys[block.place], child, problem, is_enough)

    def unheard(self, place: int) -> list[int]:
        """Children that may not know of the use of a block: not asked, or no answer from them."""
        block = self._blocks[place]
        silent = [child for child, one in block.failed.items() if one.status in _SILENT]
        return [*block.reserve, *block.pending, *silent]

    def facts(self, place: int, rows: dict[int, int]) -> BlockFacts:
        """What the block of some good fragments was stored under."""
        row = next(iter(rows.values()))
        return facts_of(self._memory.fragments(place)[row], self._keys[place])

    def assemble(self, place: int, codec: Codec, destination: bytearray | memoryview) -> Outcome:
        """Put a block together, when all has been gathered."""
        found = self.best(place)
        if found is None:
            mixed = [_MIXED] if len(self._stripes[place]) > 1 else []
            return summed_up([*self.failed(place).values(), *mixed], self._shape.parity)
        stripe, rows = found
        pieces_NF = self._memory.pieces(place)
        data_bytes, block_bytes = self._shape.data * self._shape.piece_bytes, len(destination)
        whole = np.frombuffer(destination, np.uint8)
        if data_bytes != block_bytes:
            whole = np.empty(data_bytes, np.uint8)
        is_computed = codec.decode(pieces_NF, rows, whole.reshape(self._shape.data, -1))
        if data_bytes != block_bytes:
            memoryview(destination)[:] = whole[:block_bytes].data
        if is_computed and not is_block_whole(stripe, destination):
            return _WRONG
        return HIT

    def _make_call(
        self, asked: Child, child: int, places: Sequence[int], deadline_s: float
    ) -> list[Outcome]:
        keys = [self._keys[place] for place in places]
        into = [self._memory.fragments(place)[self._pieces[place][child]] for place in places]
        name = self._shape.group.name
        if self._is_use:
            return asked.store.load(name, keys, into, deadline_s=deadline_s)
        return asked.peek(name, keys, into, deadline_s)

    def _answered_late(self, call: Call, outcomes: list[Outcome] | ChildFailed) -> None:
        """It is too late to be of use; what is wrong with it is still good to know."""
        if isinstance(outcomes, ChildFailed):
            return
        for place, outcome in zip(call.places, outcomes, strict=True):
            key, problem = self._keys[place], outcome
            if outcome.status == "hit":
                fragment = self._memory.fragments(place)[self._pieces[place][call.child]]
                piece = read_piece(fragment, self._shape, key)
                if not isinstance(piece, Outcome):
                    continue
                problem = piece
            self._noticed(key, call.child, problem, self._is_enough(self._blocks[place]))

    def _take(self, child: int, place: int, outcome: Outcome) -> Outcome | None:
        key = self._keys[place]
        row = self._pieces[place][child]
        stripes = self._stripes[place]
        piece = read_piece(self._memory.fragments(place)[row], self._shape, key, stripes)
        if isinstance(piece, Outcome):
            return piece
        number, stripe = piece
        rows = stripes.setdefault(stripe, {})
        if number in rows:
            return _TWICE
        rows[number] = row
        self._most[place] = max(self._most[place], len(rows))
        return None

    def _is_enough(self, block: Asked) -> bool:
        return self._most[block.place] >= self._shape.data

    def _could_be_enough(self, block: Asked) -> bool:
        coming = len(block.pending) + len(block.reserve)
        return self._most[block.place] + coming >= self._shape.data


class AllFragments(FragmentReads):
    """The same, until every child has answered."""

    def _is_enough(self, block: Asked) -> bool:
        return False

    def _could_be_enough(self, block: Asked) -> bool:
        return bool(block.pending or block.reserve)
