"""How fast are the same bytes without a store: copied from a map, checked, put into LMDB?

The flat file holds the records that a store would, one behind the other in whole pages. What is
done to them is the least that anybody could do who knows where they lie.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import lmdb

from deepinfer_core.stores.checksums import CHECKSUMS, best_checksum
from deepinfer_core.stores.records import HEADER_BYTES

__all__ = ["RawLmdb", "RawMap", "raw_lmdb", "raw_map"]

_PAGE_BYTES = 4096


class RawMap:
    """Records in a file that is mapped.

    Args:
        data: the file's bytes.
        stride_bytes: from one record to the next.
        block_bytes: of each record, behind its header.
    """

    def __init__(self, data: memoryview, stride_bytes: int, block_bytes: int) -> None:
        self._data, self._stride_bytes, self._block_bytes = data, stride_bytes, block_bytes
        self._checksum = CHECKSUMS[best_checksum()]

    def block(self, number: int) -> memoryview:
        """One block where it lies."""
        at = number * self._stride_bytes + HEADER_BYTES
        return self._data[at : at + self._block_bytes]

    def copy(self, numbers: Sequence[int], places: Sequence[memoryview]) -> None:
        """Copy blocks out."""
        for number, place in zip(numbers, places, strict=True):
            place[:] = self.block(number)

    def copy_and_check(self, numbers: Sequence[int], places: Sequence[memoryview]) -> None:
        """Copy blocks out and compute the checksum of each copy."""
        for number, place in zip(numbers, places, strict=True):
            place[:] = self.block(number)
            self._checksum(place)

    def check(self, numbers: Sequence[int]) -> None:
        """Compute the checksum of each block where it lies."""
        for number in numbers:
            self._checksum(self.block(number))


@contextmanager
def raw_map(folder: Path, records: Sequence[bytes]) -> Iterator[RawMap]:
    """Write records of one size into a file and map it, for the time of a ``with``."""
    stride_bytes = -(-len(records[0]) // _PAGE_BYTES) * _PAGE_BYTES
    path = folder / "records"
    with path.open("w+b") as file:
        for record in records:
            file.write(record.ljust(stride_bytes, b"\0"))
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
            yield RawMap(view, stride_bytes, len(records[0]) - HEADER_BYTES)


class RawLmdb:
    """One table.

    Args:
        environment: open.
        batch_blocks: puts of one transaction.
    """

    def __init__(self, environment: lmdb.Environment, batch_blocks: int) -> None:
        self._environment, self._batch_blocks = environment, batch_blocks
        self._table = environment.open_db(b"records")

    def put(self, keys: Sequence[bytes], records: Sequence[bytes]) -> None:
        """Put records, some in a transaction."""
        for start in range(0, len(keys), self._batch_blocks):
            batch = slice(start, start + self._batch_blocks)
            with self._environment.begin(write=True) as txn:
                for key, record in zip(keys[batch], records[batch], strict=True):
                    txn.put(key, record, db=self._table)

    def clear(self) -> None:
        """Remove everything."""
        with self._environment.begin(write=True) as txn:
            txn.drop(self._table, delete=False)

    def find(self, keys: Sequence[bytes]) -> int:
        """How many keys are there."""
        with self._environment.begin(buffers=True) as txn:
            return sum(txn.get(key, db=self._table) is not None for key in keys)

    def copy(self, keys: Sequence[bytes], places: Sequence[memoryview]) -> None:
        """Look blocks up and copy them out."""
        with self._environment.begin(buffers=True) as txn:
            for key, place in zip(keys, places, strict=True):
                place[:] = txn.get(key, b"", db=self._table)[HEADER_BYTES:]


@contextmanager
def raw_lmdb(
    folder: Path, map_bytes: int, *, batch_blocks: int, durable: bool
) -> Iterator[RawLmdb]:
    """An empty environment, for the time of a ``with``."""
    environment = lmdb.Environment(
        str(folder / "lmdb"), map_size=map_bytes, max_dbs=2, sync=durable, metasync=durable
    )
    try:
        yield RawLmdb(environment, batch_blocks)
    finally:
        environment.close()
