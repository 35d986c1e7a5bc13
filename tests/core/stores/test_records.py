"""Is a record read only if it is whole, and the one that was asked for?"""

import zlib
from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

import pytest
from deepinfer_core.interfaces.kv_store import BlockGroup, Outcome, StoreItem
from deepinfer_core.stores import record_reader
from deepinfer_core.stores.checksums import CHECKSUMS, CRC_32
from deepinfer_core.stores.record_reader import RecordReader
from deepinfer_core.stores.records import (
    HEADER_BYTES,
    RecordFacts,
    pack_record,
    padded,
    read_facts,
    record_bytes,
)
from hypothesis import given
from hypothesis import strategies as st

GROUP = BlockGroup(
    name="blocks",
    number_format="mxfp4",
    layout=bytes(range(16)),
    block_tokens=128,
    block_bytes=1000,
    reuse="leading",
    replay_tokens=0,
    retention="agent",
)
KEY, NAMESPACE = bytes(range(32)), bytes(range(100, 132))
DATA = bytes(number * number % 251 for number in range(1000))
ITEM = StoreItem(key=KEY, data=DATA, namespace=NAMESPACE, depth=7, retention="chat")
RECORD = pack_record(GROUP, ITEM, 1_700_000_000.9)


def status(record: bytes, group: BlockGroup = GROUP, key: bytes = KEY) -> str:
    """What reading in place says, and copying must say as well."""
    found = RecordReader(group).view(memoryview(record), key)
    copy = bytearray(group.block_bytes)
    problem = RecordReader(group).copy(memoryview(record), key, copy)
    if isinstance(found, Outcome):
        assert problem == found
        return found.status
    assert problem is None
    assert copy == found
    return "hit"


def by_hand(kind: int, checksum: bytes, version: int = 1, size: int = 192) -> bytes:
    """The same record, put together from the table in the module's first lines."""
    body = (
        bytes(range(16))
        + b"blocks".ljust(16, b"\0")
        + KEY
        + NAMESPACE
        + b"chat".ljust(16, b"\0")
        + (7).to_bytes(4, "little")
        + kind.to_bytes(2, "little")
        + bytes(2)
        + (1_700_000_000).to_bytes(8, "little")
        + (1000).to_bytes(8, "little")
        + checksum
        + bytes(size - 168)
    )
    head = b"DIblock\0" + version.to_bytes(2, "little") + size.to_bytes(2, "little")
    crc = zlib.crc32(head + bytes(4) + body)
    return head + crc.to_bytes(4, "little") + body + DATA


def flipped(record: bytes, bit: int) -> bytes:
    changed = bytearray(record)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_record_is_the_header_of_the_table_and_the_block() -> None:
    kind = max(CHECKSUMS)
    assert by_hand(kind, CHECKSUMS[kind](DATA)) == RECORD
    assert len(RECORD) == record_bytes(GROUP) == 192 + 1000


def test_a_record_that_somebody_else_wrote_with_crc_32_is_read() -> None:
    record = by_hand(CRC_32, zlib.crc32(DATA).to_bytes(4, "little") + bytes(12))
    found = RecordReader(GROUP).view(memoryview(record), KEY)
    assert isinstance(found, memoryview)
    assert found == DATA


def test_a_block_is_read_without_a_copy() -> None:
    record = bytearray(RECORD)
    found = RecordReader(GROUP).view(memoryview(record), KEY)
    assert isinstance(found, memoryview)
    record[HEADER_BYTES] ^= 1
    assert found[0] == DATA[0] ^ 1


def test_the_header_says_all_that_the_block_was_stored_under() -> None:
    assert read_facts(memoryview(RECORD)) == RecordFacts(
        group="blocks",
        layout=bytes(range(16)),
        key=KEY,
        namespace=NAMESPACE,
        retention="chat",
        depth=7,
        checksum_kind=max(CHECKSUMS),
        checksum=CHECKSUMS[max(CHECKSUMS)](DATA),
        written_s=1_700_000_000,
        data_bytes=1000,
    )


def test_a_copy_may_lie_in_the_middle_of_a_buffer() -> None:
    destination = bytearray(len(DATA) + 2)
    inner = memoryview(destination)[1:-1]
    assert RecordReader(GROUP).copy(memoryview(RECORD), KEY, inner) is None
    assert destination == b"\0" + DATA + b"\0"


def test_records_are_read_one_by_one_when_the_caller_comes_for_them() -> None:
    behind = memoryview(bytes(48) + RECORD)
    changed = memoryview(bytes(48) + RECORD[:-1] + bytes([RECORD[-1] ^ 1]))
    asked: list[int] = []

    def found() -> Iterator[memoryview | None]:
        for number, one in enumerate((memoryview(RECORD), None, behind, changed)):
            asked.append(number)
            yield one

    copies = [bytearray(len(DATA)) for _ in range(4)]
    each = RecordReader(GROUP).read_each(found(), [KEY] * 4, copies)
    under = (padded("chat"), 1_700_000_000)
    assert (next(each), asked) == (under, [0])
    assert (next(each), asked) == (None, [0, 1])
    assert (next(each), asked) == (under, [0, 1, 2])
    assert copies[0] == copies[2] == DATA
    assert next(each) == Outcome(status="corrupt", reason="the block has changed")


def test_a_record_of_another_size_is_found_behind_its_zeros() -> None:
    longer = replace(GROUP, block_bytes=len(DATA) + 3, layout=bytes(16))
    item = replace(ITEM, data=bytes(DATA) + b"abc")
    behind = memoryview(bytes(48) + pack_record(longer, item, 1))
    [found] = RecordReader(GROUP).read_each((behind,), (KEY,), (None,))
    assert found == Outcome(status="version", reason="it has another layout")


def test_a_block_whose_writer_names_no_class_says_that_of_its_group() -> None:
    facts = read_facts(memoryview(pack_record(GROUP, replace(ITEM, retention=""), 0)))
    assert isinstance(facts, RecordFacts)
    assert facts.retention == "agent"


def test_every_bit_of_the_header_that_flips_is_found() -> None:
    for bit in range(8 * HEADER_BYTES):
        assert status(flipped(RECORD, bit)) == "corrupt", bit


def test_every_bit_of_the_header_that_flips_is_found_without_the_block() -> None:
    for bit in range(8 * HEADER_BYTES):
        found = read_facts(memoryview(flipped(RECORD, bit)))
        assert isinstance(found, Outcome), bit


@given(st.integers(8 * HEADER_BYTES, 8 * len(RECORD) - 1))
def test_a_bit_of_the_block_that_flips_is_found(bit: int) -> None:
    assert status(flipped(RECORD, bit)) == "corrupt"


@given(st.integers(0, 8 * len(DATA) - 1))
def test_a_bit_of_the_block_that_flips_is_found_with_crc_32(bit: int) -> None:
    record = by_hand(CRC_32, zlib.crc32(DATA).to_bytes(4, "little") + bytes(12))
    assert status(flipped(record, 8 * HEADER_BYTES + bit)) == "corrupt"


@given(st.integers(0, len(RECORD) - 1), st.binary(min_size=1, max_size=300))
def test_bytes_that_are_written_over_a_record_are_found(at: int, other: bytes) -> None:
    torn = (RECORD[:at] + other + RECORD[at + len(other) :])[: len(RECORD)]
    assert status(torn) == ("hit" if torn == RECORD else "corrupt")


def test_a_record_that_is_cut_off_anywhere_is_corrupt() -> None:
    for size in range(len(RECORD)):
        assert status(RECORD[:size]) == "corrupt", size


def test_bytes_behind_a_record_are_corrupt() -> None:
    assert status(RECORD + b"\0") == "corrupt"


@given(st.binary(max_size=400))
def test_bytes_that_are_no_record_are_corrupt(noise: bytes) -> None:
    assert status(noise) == "corrupt"
    assert status(b"DIblock\0" + noise) == "corrupt"


@pytest.mark.parametrize("place", [0, 15, 31])
def test_a_whole_record_in_the_place_of_another_is_corrupt(place: int) -> None:
    other = bytearray(KEY)
    other[place] ^= 1
    assert status(RECORD, key=bytes(other)) == "corrupt"


def test_a_whole_record_of_another_group_is_corrupt() -> None:
    assert status(RECORD, replace(GROUP, name="block")) == "corrupt"
    assert status(RECORD, replace(GROUP, name="blocks_")) == "corrupt"


def test_a_whole_record_of_another_size_is_corrupt() -> None:
    shorter = replace(GROUP, block_bytes=999)
    assert status(RECORD, shorter) == "corrupt"
    assert status(RECORD[:-1], shorter) == "corrupt"


def test_another_layout_is_a_version_and_no_damage() -> None:
    assert status(RECORD, replace(GROUP, layout=bytes(16))) == "version"


@pytest.mark.parametrize("version", [0, 2, 65535])
@pytest.mark.parametrize("size", [168, 192, 256])
def test_another_version_is_a_version_whatever_its_header_holds(version: int, size: int) -> None:
    assert status(by_hand(1, bytes(16), version, size)) == "version"


def test_a_checksum_that_cannot_be_computed_here_is_a_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_reader, "CHECKSUMS", MappingProxyType({}))
    assert status(RECORD) == "version"


@pytest.mark.parametrize(
    "fields",
    [
        {"data": DATA[:-1]},
        {"data": DATA + b"\0"},
        {"key": KEY[:-1]},
        {"key": KEY + b"\0"},
        {"namespace": b""},
        {"depth": -1},
        {"depth": 2**32},
        {"retention": "Chat"},
        {"retention": "seventeen_letters"},
    ],
)
def test_what_a_record_cannot_say_is_refused(fields: dict[str, bytes]) -> None:
    with pytest.raises(ValueError, match="found"):
        pack_record(GROUP, replace(ITEM, **fields), 0)


def test_a_time_before_1970_is_refused() -> None:
    with pytest.raises(ValueError, match="before 1970"):
        pack_record(GROUP, ITEM, -1.0)


@pytest.mark.parametrize("depth", [0, 1, 2**32 - 1])
def test_every_depth_comes_back(depth: int) -> None:
    facts = read_facts(memoryview(pack_record(GROUP, replace(ITEM, depth=depth), 0)))
    assert isinstance(facts, RecordFacts)
    assert facts.depth == depth
