"""Which prefixes does an engine wait for, until when, and what happened to all of them? Pure."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from deepinfer_core.stores.fetcher.messages import Known, Seek
from deepinfer_core.stores.traffic import TrafficCounts, Wanted

__all__ = ["Tally", "Tickets"]

_GRACE_S = 0.25
"""How long behind a deadline the fetcher is waited for, which keeps the same deadline."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts; see ``TrafficCounts``."""

    fetched_blocks: int = 0
    fetched_bytes: int = 0
    fetched_batches: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    probes: int = 0
    match_s: float = 0.0
    fetch_s: float = 0.0
    match_timeouts: int = 0
    no_slots: int = 0

    def came(self, blocks: int, block_bytes: int) -> None:
        """Blocks arrived."""
        self.fetched_blocks += blocks
        self.fetched_bytes += blocks * block_bytes
        self.fetched_batches += 1

    def counts(self) -> TrafficCounts:
        """As they are now."""
        return TrafficCounts(
            fetched_blocks=self.fetched_blocks,
            fetched_bytes=self.fetched_bytes,
            fetched_batches=self.fetched_batches,
            ended=dict(self.ended),
            written=dict(+self.written),
            probes=self.probes,
            match_s=self.match_s,
            fetch_s=self.fetch_s,
            match_timeouts=self.match_timeouts,
            no_slots=self.no_slots,
        )


@dataclass(slots=True, kw_only=True)
class _Ticket:
    seek: Seek
    asked_s: float
    known_s: float | None = None

    @property
    def overdue_s(self) -> float:
        by_s = self.seek.match_by_s if self.known_s is None else self.seek.fetch_by_s
        return by_s + _GRACE_S


class Tickets:
    """Prefixes that have not ended.

    Attributes:
        tally: of all, also of what has ended.
    """

    def __init__(self) -> None:
        self.tally = Tally()
        self._tickets: dict[int, _Ticket] = {}
        self._last = 0

    def open(self, wanted: Wanted, now_s: float) -> Seek:
        """One more; what the fetcher is told."""
        self._last += 1
        seek = Seek(
            ticket=self._last,
            keys=b"".join(wanted.keys),
            has=wanted.has,
            expected=wanted.expected,
            group=wanted.group,
            state_group=wanted.state_group,
            retention=wanted.retention,
            match_by_s=now_s + wanted.match_s,
            fetch_by_s=now_s + wanted.fetch_s,
        )
        self._tickets[self._last] = _Ticket(seek=seek, asked_s=now_s)
        return seek

    def is_open(self, ticket: int) -> bool:
        """Whether it has not ended."""
        return ticket in self._tickets

    def all(self) -> list[int]:
        """Those that have not ended."""
        return list(self._tickets)

    def known(self, message: Known, now_s: float) -> bool:
        """It is known how much is there of one; whether it has not ended."""
        self.tally.probes += message.probes
        ticket = self._tickets.get(message.ticket)
        if ticket is None:
            return False
        ticket.known_s = now_s
        self.tally.match_s += now_s - ticket.asked_s
        return True

    def close(self, number: int, reason: str, now_s: float) -> bool:
        """One ends; whether it had not before."""
        ticket = self._tickets.pop(number, None)
        if ticket is None:
            return False
        self.tally.ended[reason] += 1
        if ticket.known_s is None:
            self.tally.match_s += now_s - ticket.asked_s
            self.tally.match_timeouts += reason == "timeout"
        else:
            self.tally.fetch_s += now_s - ticket.known_s
        return True

    def overdue(self, now_s: float) -> list[int]:
        """Those that the fetcher should have ended."""
        return [number for number, one in self._tickets.items() if now_s >= one.overdue_s]

    def next_overdue_s(self) -> float:
        """When the next one is."""
        return min((one.overdue_s for one in self._tickets.values()), default=math.inf)
