"""How much memory and how many threads do blocks on their way take?"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TrafficOptions"]

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficOptions:
    """Sizes and times of a fetcher.

    Attributes:
        arriving_bytes: shared memory for blocks that come.
        departing_bytes: shared memory for blocks that go.
        state_bytes: memory of the fetcher for states, if the store outlives processes.
        state_s: seconds behind its last use after which such a state is dropped.
        read_threads: calls of the store at a time that look for blocks or load them.
        write_age_s: a block that could not be written for so long is dropped.
        call_s: longest time that one call of the store is given.
        sweep_every_s: seconds between two sweeps of the store.
        start_s: seconds that a fetcher may take to start and open the store.
    """

    arriving_bytes: int = 256 * _MIB
    departing_bytes: int = 256 * _MIB
    state_bytes: int = 4096 * _MIB
    state_s: float = 180.0
    read_threads: int = 4
    write_age_s: float = 30.0
    call_s: float = 10.0
    sweep_every_s: float = 60.0
    start_s: float = 120.0
