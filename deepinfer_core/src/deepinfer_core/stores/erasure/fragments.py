"""What does a fragment say of itself, and does it belong to the others?

A fragment is a header of 160 bytes and one piece of a block. Numbers are little-endian; texts are
ASCII, filled up with zeros::

    at   0  16 bytes  checksum of all that follows
        16  2         number of the piece
        18  2         number of the checksum
        20  8         magic
        28  2         version of the format
        30  2         pieces of data, k
        32  2         pieces beside them, m
        34  2         number of the checksum of the block
        36  8         bytes of the block
        44  16        fingerprint of the block's layout
        60  16        checksum of the block
        76  32        key
       108  32        namespace
       140  4         depth in the chain
       144  16        retention class

Fragments of one block that were written together agree in the bytes from 20 to 108: they are one
*stripe*. Two writers of one key may have computed bytes that differ, and pieces of both must never
be put together.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from deepinfer_core.interfaces.kv_store import BlockGroup, Outcome, StoreItem
from deepinfer_core.interfaces.kv_upkeep import BlockFacts
from deepinfer_core.stores.checksums import CHECKSUMS, best_checksum

__all__ = [
    "FRAGMENT_HEADER_BYTES",
    "Piece",
    "Shape",
    "facts_of",
    "fragment_groups",
    "is_block_whole",
    "read_piece",
]

FRAGMENT_HEADER_BYTES = 160

_MAGIC = b"DIpiece\0"
_VERSION = 1
_CHECKSUM_BYTES = 16
_BEGINNING = struct.Struct("<16sHH88s")
_NUMBERS = struct.Struct("<HH")
_STRIPE = struct.Struct("<8sHHHHQ16s16s32s")
_REST = struct.Struct("<32sI16s")
_STRIPE_AT, _REST_AT = 20, 108
_BLOCK_CHECKSUM = slice(40, 56)
"""Within a stripe."""

_SHORT = Outcome(status="corrupt", reason="a fragment is cut off")
_CHANGED = Outcome(status="corrupt", reason="a fragment has changed")
_OTHER = Outcome(status="corrupt", reason="a fragment of another block")
_VERSION_OF_OTHERS = Outcome(status="version", reason="a fragment of another format")


class Piece(NamedTuple):
    """What a fragment that is whole says.

    Attributes:
        number: of the piece.
        stripe: what it shares with those that it was written with.
    """

    number: int
    stripe: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How blocks of a group are cut.

    Attributes:
        group: of the blocks.
        data: pieces of data, k.
        parity: pieces beside them, m.
        count: pieces of a block.
        piece_bytes: bytes of a piece; the last of the data is filled up with zeros.
        fragment_bytes: bytes of a fragment.
    """

    group: BlockGroup
    data: int
    parity: int
    count: int = field(init=False)
    piece_bytes: int = field(init=False)
    fragment_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        """Compute what every fragment is asked for."""
        piece_bytes = -(-self.group.block_bytes // self.data)
        object.__setattr__(self, "count", self.data + self.parity)
        object.__setattr__(self, "piece_bytes", piece_bytes)
        object.__setattr__(self, "fragment_bytes", FRAGMENT_HEADER_BYTES + piece_bytes)

    @property
    def fragment_group(self) -> BlockGroup:
        """What the stores are opened for: a block of theirs is a fragment."""
        return replace(self.group, block_bytes=self.fragment_bytes)

    def write_headers(self, item: StoreItem, fragments: Sequence[memoryview]) -> None:
        """Complete fragments, of which all pieces are there.

        Args:
            item: the block.
            fragments: all of its fragments, in order of their pieces.
        """
        kind = best_checksum()
        checksum = CHECKSUMS[kind]
        stripe = _STRIPE.pack(
            _MAGIC,
            _VERSION,
            self.data,
            self.parity,
            kind,
            self.group.block_bytes,
            self.group.layout,
            checksum(item.data),
            item.key,
        )
        retention = item.retention or self.group.retention
        common = stripe + _REST.pack(item.namespace, item.depth, retention.encode())
        for number, fragment in enumerate(fragments):
            _NUMBERS.pack_into(fragment, _CHECKSUM_BYTES, number, kind)
            fragment[_STRIPE_AT:FRAGMENT_HEADER_BYTES] = common
            fragment[:_CHECKSUM_BYTES] = checksum(fragment[_CHECKSUM_BYTES:])


def fragment_groups(shapes: Mapping[str, Shape]) -> list[BlockGroup]:
    """What child stores are opened for."""
    return [shape.fragment_group for shape in shapes.values()]


def read_piece(
    fragment: memoryview, shape: Shape, key: bytes, known: Collection[bytes] = ()
) -> Piece | Outcome:
    """What a fragment says, if it is whole and one of the block that was asked for.

    Args:
        fragment: header and piece.
        shape: of the block.
        key: of the block.
        known: stripes of whole fragments of the block.

    Returns:
        The piece's number and stripe; otherwise ``corrupt`` or ``version``.
    """
    if len(fragment) != shape.fragment_bytes:
        return _SHORT
    checksum, number, kind, stripe = _BEGINNING.unpack_from(fragment)
    compute = CHECKSUMS.get(kind)
    if compute is None:
        return Outcome(status="version", reason=f"no checksum {kind} here: install xxhash")
    if compute(fragment[_CHECKSUM_BYTES:]) != checksum:
        return _CHANGED
    if number >= shape.count:
        return _OTHER
    if stripe not in known and (problem := _stripe_problem(stripe, shape, key)) is not None:
        return problem
    return Piece(number, stripe)


def _stripe_problem(stripe: bytes, shape: Shape, key: bytes) -> Outcome | None:
    """Why a whole fragment is not one of the block that was asked for."""
    magic, version, data, parity, _, block_bytes, layout, _, found_key = _STRIPE.unpack(stripe)
    if (magic, found_key) != (_MAGIC, key):
        return _OTHER
    if (version, data, parity) != (_VERSION, shape.data, shape.parity):
        return _VERSION_OF_OTHERS
    if (block_bytes, layout) != (shape.group.block_bytes, shape.group.layout):
        return _VERSION_OF_OTHERS
    return None


def is_block_whole(stripe: bytes, block: bytearray | memoryview) -> bool:
    """Whether a block that was computed is the one that was stored."""
    compute = CHECKSUMS.get(_STRIPE.unpack(stripe)[4])
    return compute is not None and compute(block) == stripe[_BLOCK_CHECKSUM]


def facts_of(fragment: memoryview, key: bytes) -> BlockFacts:
    """What the block of a fragment that is whole was stored under."""
    namespace, depth, retention = _REST.unpack_from(fragment, _REST_AT)
    return BlockFacts(
        key=key, namespace=namespace, depth=depth, retention=retention.rstrip(b"\0").decode()
    )
