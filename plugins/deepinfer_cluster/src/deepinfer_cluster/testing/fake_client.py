"""What does Mooncake's client do, with a pool in the same process? See ``fake_pool``."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from deepinfer_cluster.link import Library
from deepinfer_cluster.pool import Client
from deepinfer_cluster.testing.fake_pool import FakePool, Node

__all__ = ["FakeClient", "library_of"]


def library_of(pool: FakePool, copies: int = 1) -> Library:
    """A library whose clients join a pool, and put so many copies."""
    return Library(new_client=lambda: FakeClient(pool), put_config=copies)


class FakeClient(Client):
    """One client of a pool.

    Args:
        pool: that it joins.
    """

    def __init__(self, pool: FakePool) -> None:
        self._pool = pool
        self._is_set_up = False
        self._registered: dict[int, int] = {}

    def setup(
        self,
        local_hostname: str,
        metadata_server: str,
        global_segment_size: int,
        local_buffer_size: int,
        protocol: str,
        rdma_devices: str,
        master_server_addr: str,
    ) -> int:
        """Join."""
        assert not self._is_set_up
        if not self._pool.is_up:
            self._pool.slow_calls += 1
            return -600
        self._is_set_up = True
        return 0

    def register_buffer(self, buffer_ptr: int, size: int) -> int:
        """Note it."""
        self._called("register_buffer")
        for start, length in self._registered.items():
            if buffer_ptr < start + length and start < buffer_ptr + size:
                return -600
        self._registered[buffer_ptr] = size
        return 0

    def unregister_buffer(self, buffer_ptr: int) -> int:
        """Forget it."""
        self._called("unregister_buffer")
        return 0 if self._registered.pop(buffer_ptr, None) else -600

    def batch_is_exist(self, keys: list[str]) -> list[int]:
        """Look, and lease."""

        def one(name: str) -> int:
            found = self._pool.kept.get(name)
            if found is not None:
                found.is_leased = True
            return int(found is not None)

        return self._each("batch_is_exist", keys, one)

    def batch_put_from(
        self, keys: list[str], buffer_ptrs: list[int], sizes: list[int], config: Any
    ) -> list[int]:
        """Copy out of memory."""
        memory = dict(zip(keys, zip(buffer_ptrs, sizes, strict=True), strict=True))

        def one(name: str) -> int:
            address, size = memory[name]
            self._require_registered(address, size)
            return self._pool.put(name, ctypes.string_at(address, size), config)

        return self._each("batch_put_from", keys, one)

    def batch_get_into(
        self, keys: list[str], buffer_ptrs: list[int], sizes: list[int]
    ) -> list[int]:
        """Copy into memory."""
        rooms = iter(zip(buffer_ptrs, sizes, strict=True))

        def one(name: str) -> int:
            address, size = next(rooms)
            return self._copy(name, address, 0, size, is_range=False)

        return self._each("batch_get_into", keys, one)

    def get_into_ranges(
        self,
        buffer_ptrs: list[int],
        all_keys: list[list[str]],
        all_dst_offsets: list[list[list[int]]],
        all_src_offsets: list[list[list[int]]],
        all_sizes: list[list[list[int]]],
    ) -> list[list[list[int]]]:
        """Copy parts into memory."""
        answers = []
        for base, names, *lists in zip(
            buffer_ptrs, all_keys, all_dst_offsets, all_src_offsets, all_sizes, strict=True
        ):
            ranges = iter(zip(*lists, strict=True))

            def one(name: str, base: int = base, ranges: Any = ranges) -> int:
                (at,), (source,), (size,) = next(ranges)
                return self._copy(name, base + at, source, size, is_range=True)

            answers.append([[code] for code in self._each("get_into_ranges", names, one)])
        return answers

    def get_size(self, key: str) -> int:
        """Bytes of an object."""

        def one(name: str) -> int:
            found = self._pool.kept.get(name)
            return len(found.data) if found else -704

        return self._each("get_size", [key], one)[0]

    def batch_get_replica_desc(self, keys: list[str]) -> Mapping[str, Sequence[Any]]:
        """Where they are."""
        self._called("batch_get_replica_desc")
        found = {name: self._pool.kept[name].nodes for name in keys if name in self._pool.kept}
        return {name: list(map(_copy_on, on)) for name, on in found.items() if self._pool.is_up}

    def batch_remove(self, keys: list[str], force: bool) -> list[int]:
        """Forget them."""
        return self._each("batch_remove", keys, lambda name: self._pool.remove(name, force=force))

    def remove_by_regex(self, regex_pattern: str, force: bool) -> int:
        """Forget those that match."""
        names = [name for name in self._pool.kept if re.search(regex_pattern, name)]
        codes = self._each(
            "remove_by_regex", names or [""], lambda name: self._pool.remove(name, force=force)
        )
        return codes[0] if codes[0] == -900 else codes.count(0)

    def close(self) -> int:
        """Leave."""
        self._called("close")
        self._is_set_up = False
        return 0

    def _each(self, call: str, names: Sequence[str], one: Callable[[str], int]) -> list[int]:
        """An answer for each name, and whether the call would have been slow."""
        self._called(call)
        codes = [one(name) if self._pool.is_up else -900 for name in names]
        self._pool.slow_calls += any(code in (-800, -900) for code in codes)
        return codes

    def _called(self, call: str) -> None:
        if not self._is_set_up:
            raise RuntimeError(f"{call} of a client that is not set up ends the process")
        self._pool.calls.append(call)

    def _copy(self, name: str, address: int, at: int, size: int, *, is_range: bool) -> int:
        self._require_registered(address, size)
        data = self._pool.read(name, at, size, is_range=is_range)
        if isinstance(data, int):
            return data
        ctypes.memmove(address, data, len(data))
        return len(data)

    def _require_registered(self, address: int, size: int) -> None:
        inside = (s <= address and address + size <= s + n for s, n in self._registered.items())
        if not any(inside):
            raise RuntimeError("memory that is not registered")


def _copy_on(node: Node) -> Any:
    """As the client describes one copy in memory."""
    buffer = SimpleNamespace(transport_endpoint=node.address)
    memory = SimpleNamespace(buffer_descriptor=buffer)
    return SimpleNamespace(is_memory_replica=lambda: True, get_memory_descriptor=lambda: memory)
