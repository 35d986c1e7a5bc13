"""What of Mooncake's Python client is used, and what do its answers mean?

Objects have names and bytes; a call is of many and answers with a number for each: not negative,
it went well; negative, it did not. Memory is given by its address and must be registered.

The numbers are those of Mooncake's ``ErrorCode`` (``mooncake-store/include/types.h``, Apache-2.0).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from deepinfer_core.interfaces.kv_store import KEY_BYTES, Outcome

__all__ = [
    "INVALID",
    "MASTER_FAILED",
    "NODE_FAILED",
    "NO_ROOM",
    "Client",
    "Names",
    "Place",
    "is_gone",
    "is_masters",
    "problem_of",
]

NO_ROOM = -200
INVALID = -600
NODE_FAILED = -800
MASTER_FAILED = -900

_GONE = {-702, -703, -704, -710, -712}
"""No object of that name, or none whose bytes are all there (yet)."""

_MASTERS = {MASTER_FAILED, -901}
"""The call did not reach the master, or was not answered."""

_REASONS = {
    NO_ROOM: "the pool is full, or has no node",
    -707: "the lease on the block ran out while it was read",
    NODE_FAILED: "a node of the pool does not answer",
    -801: "the pool's own checksum does not fit",
    MASTER_FAILED: "the pool's master does not answer",
    -901: "the pool's master does not answer in time",
}


class Client(Protocol):
    """``mooncake.store.MooncakeDistributedStore``, as far as it is called.

    Nothing may be called but ``setup`` before that returned 0, and nothing behind ``close``: the
    library ends the process then. These two hold the interpreter, so no other thread runs. The
    other calls let them; several threads may make them, and they can take a minute.
    """

    @abstractmethod
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
        """Reach the master; 0 if it could. Never to be repeated on the same object.

        Where there is none it tries for four seconds, with an address of its own that has no port
        for ninety.
        """

    @abstractmethod
    def register_buffer(self, buffer_ptr: int, size: int) -> int:
        """Make memory known to the network; 0 if it is."""

    @abstractmethod
    def unregister_buffer(self, buffer_ptr: int) -> int:
        """Undo that."""

    @abstractmethod
    def batch_is_exist(self, keys: list[str]) -> list[int]:
        """1, 0 or negative."""

    @abstractmethod
    def batch_put_from(
        self, keys: list[str], buffer_ptrs: list[int], sizes: list[int], config: Any
    ) -> list[int]:
        """0 also for a name that is taken, whose object then stays."""

    @abstractmethod
    def batch_get_into(
        self, keys: list[str], buffer_ptrs: list[int], sizes: list[int]
    ) -> list[int]:
        """Bytes of the object; -600 if there was no room for it."""

    @abstractmethod
    def get_into_ranges(
        self,
        buffer_ptrs: list[int],
        all_keys: list[list[str]],
        all_dst_offsets: list[list[list[int]]],
        all_src_offsets: list[list[list[int]]],
        all_sizes: list[list[list[int]]],
    ) -> list[list[list[int]]]:
        """By buffer, name and range its bytes; -600 if the range does not lie in the object."""

    @abstractmethod
    def get_size(self, key: str) -> int:
        """Bytes of an object."""

    @abstractmethod
    def batch_get_replica_desc(self, keys: list[str]) -> Mapping[str, Sequence[Any]]:
        """Where copies are, of the names that there are."""

    @abstractmethod
    def batch_remove(self, keys: list[str], force: bool) -> list[int]:
        """0, or -704; -706 if somebody has just looked at it, unless forced."""

    @abstractmethod
    def remove_by_regex(self, regex_pattern: str, force: bool) -> int:
        """How many were removed."""

    @abstractmethod
    def close(self) -> int:
        """Leave the pool; takes a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """How a pool is reached; see ``options.MooncakeOptions``."""

    master: str
    metadata: str
    protocol: str
    devices: str
    host: str


class Names:
    """Under which names do blocks lie in the pool?

    Args:
        pool: first part of all of them.
    """

    def __init__(self, pool: str) -> None:
        self._pool = pool

    @property
    def all_of_them(self) -> str:
        """A regular expression for every name."""
        return f"^{self._pool}/"

    @property
    def nobodys(self) -> str:
        """A name that no block has."""
        return f"{self._pool}/"

    def of(self, group: str, keys: Sequence[bytes]) -> list[str]:
        """Names of blocks of a group."""
        return [f"{self._pool}/{group}/{key.hex()}" for key in keys]

    def is_one(self, name: str, group: str = "") -> bool:
        """Whether a block of this pool may have that name, or one of a group of it."""
        pool, _, rest = name.partition("/")
        found, _, key = rest.partition("/")
        return pool == self._pool and len(key) == 2 * KEY_BYTES and group in ("", found)


def is_gone(code: int) -> bool:
    """Whether there is nothing to be read under the name."""
    return code in _GONE


def is_masters(code: int) -> bool:
    """Whether it is the master that did not answer."""
    return code in _MASTERS


def problem_of(code: int) -> Outcome:
    """What a negative answer means for a block, unless it is gone."""
    reason = _REASONS.get(code, f"the pool answered {code}")
    return Outcome(status="unavailable", reason=reason)
