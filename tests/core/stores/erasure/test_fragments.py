"""Is a fragment that is not what it should be found, whatever of it has changed?"""

from dataclasses import replace

import numpy as np
import pytest
from deepinfer_core.interfaces.kv_store import Outcome, StoreItem
from deepinfer_core.stores.checksums import CHECKSUMS
from deepinfer_core.stores.erasure.codec import NumpyCodec
from deepinfer_core.stores.erasure.fragments import (
    FRAGMENT_HEADER_BYTES,
    Shape,
    facts_of,
    is_block_whole,
    read_piece,
)
from deepinfer_core.stores.erasure.frames import FramePool, Frames
from deepinfer_core.stores.erasure.writing import write_frame
from deepinfer_core.testing.contracts.kv_store_suite import block, item, key
from deepinfer_core.testing.store_groups import BLOCKS

SHAPE = Shape(group=BLOCKS, data=10, parity=2)


def cut(one: StoreItem, shape: Shape = SHAPE) -> Frames:
    frames = FramePool().lease(shape, 1)
    write_frame(shape, NumpyCodec(shape.data, shape.parity), one, frames, 0)
    return frames


def status(found: object) -> str:
    return found.status if isinstance(found, Outcome) else "whole"


def test_every_fragment_says_what_it_is() -> None:
    frames = cut(item("a", depth=7, retention="chat"))
    pieces = [read_piece(frames.fragments(0)[row], SHAPE, key("a")) for row in range(12)]
    assert [one.number for one in pieces if not isinstance(one, Outcome)] == list(range(12))
    assert len({one.stripe for one in pieces if not isinstance(one, Outcome)}) == 1
    facts = facts_of(frames.fragments(0)[3], key("a"))
    assert (facts.namespace, facts.depth, facts.retention) == (item("a").namespace, 7, "chat")
    data = b"".join(frames.fragments(0)[row][FRAGMENT_HEADER_BYTES:] for row in range(10))
    assert data == block("a") + bytes(2)


# One bit at least of every field of the header, by its place in the table of the module, and of the
# piece: its first, last and some bits between.
FIELDS = [0, 15, 16, 17, 18, 19, 20, 27, 28, 30, 32, 34, 36, 43, 44, 59, 60, 75, 76, 107, 108, 139]
FIELDS += [140, 143, 144, 159, 160, 161, 300, 547, 548]


@pytest.mark.parametrize("byte", FIELDS)
@pytest.mark.parametrize("row", [0, 9, 10, 11])
def test_a_flipped_bit_of_a_fragment_is_found(byte: int, row: int) -> None:
    assert SHAPE.fragment_bytes == 549
    fragment = cut(item("a")).fragments(0)[row]
    for bit in range(8):
        fragment[byte] ^= 1 << bit
        assert status(read_piece(fragment, SHAPE, key("a"))) in ("corrupt", "version")
        fragment[byte] ^= 1 << bit
        assert status(read_piece(fragment, SHAPE, key("a"))) == "whole"


@pytest.mark.parametrize("kind", sorted(CHECKSUMS))
def test_whatever_checksum_it_has(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepinfer_core.stores.erasure.fragments.best_checksum", lambda: kind)
    frames = cut(item("a"))
    fragment = frames.fragments(0)[2]
    piece = read_piece(fragment, SHAPE, key("a"))
    assert not isinstance(piece, Outcome)
    assert is_block_whole(piece.stripe, bytearray(block("a")))
    assert not is_block_whole(piece.stripe, bytearray(block("b")))
    fragment[200] ^= 1
    assert status(read_piece(fragment, SHAPE, key("a"))) == "corrupt"


def test_an_unknown_checksum_is_of_another_version() -> None:
    fragment = cut(item("a")).fragments(0)[0]
    fragment[18] = 0xEE
    assert status(read_piece(fragment, SHAPE, key("a"))) == "version"


def test_a_fragment_of_another_block_group_or_code_is_none() -> None:
    whole = cut(item("a")).fragments(0)[0]
    assert status(read_piece(whole, SHAPE, key("b"))) == "corrupt"
    assert status(read_piece(whole[:-1], SHAPE, key("a"))) == "corrupt"
    other_code = Shape(group=replace(BLOCKS, block_bytes=3888), data=10, parity=3)
    assert status(read_piece(whole, other_code, key("a"))) == "version"
    other_layout = replace(SHAPE, group=replace(BLOCKS, layout=bytes(16)))
    assert status(read_piece(whole, other_layout, key("a"))) == "version"
    other_length = replace(SHAPE, group=replace(BLOCKS, block_bytes=3889))
    assert other_length.piece_bytes == SHAPE.piece_bytes
    assert status(read_piece(whole, other_length, key("a"))) == "version"


def test_stripes_differ_with_the_block_and_agree_without_the_class() -> None:
    def stripe(one: StoreItem) -> bytes:
        piece = read_piece(cut(one).fragments(0)[0], SHAPE, one.key)
        assert not isinstance(piece, Outcome)
        return piece.stripe

    assert stripe(item("a")) == stripe(item("a", retention="chat"))
    assert stripe(item("a")) != stripe(replace(item("a"), data=block("b")))


@pytest.mark.parametrize("block_bytes", [1, 9, 10, 11, 3880, 3888, 3889, 3890])
def test_blocks_of_every_length_are_cut(block_bytes: int) -> None:
    shape = Shape(group=replace(BLOCKS, block_bytes=block_bytes), data=10, parity=2)
    assert shape.piece_bytes == -(-block_bytes // 10)
    data = np.arange(block_bytes).astype(np.uint8).tobytes()
    frames = cut(replace(item("a"), data=data), shape)
    joined = b"".join(frames.fragments(0)[row][FRAGMENT_HEADER_BYTES:] for row in range(10))
    assert joined[:block_bytes] == data


def test_memory_is_used_again_only_when_nobody_uses_it() -> None:
    pool = FramePool()
    first = pool.lease(SHAPE, 2)
    first.hold()
    first.release()
    second = pool.lease(SHAPE, 2)
    assert second.fragments(0) is not first.fragments(0)
    first.release()
    third = pool.lease(SHAPE, 2)
    assert third.fragments(0) is first.fragments(0)
    assert len(pool.lease(SHAPE, 3).fragments(2)) == SHAPE.count
