"""What does the fetcher do next for the prefixes that are wanted, and what does it tell of them?

Threads ask for work and tell how it went; a thread that keeps time ends what is late. Blocks are
loaded from the front, a few calls of the store for a prefix at a time, prefixes taking turns. Pure:
whoever calls holds a lock, and says what time it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deepinfer_core.stores.fetcher.gallop import Match
from deepinfer_core.stores.fetcher.loads import Load, Loads
from deepinfer_core.stores.fetcher.messages import Came, FromFetcher, Known, Over, Seek
from deepinfer_core.stores.fetcher.prefix import Prefix, prefix_of

__all__ = ["Desk", "FindState", "LoadBlocks", "MatchKeys", "Work"]

_AHEAD = 2
"""Calls of the store for one prefix at a time: while one block is copied the next is asked for."""

_MATCH_GRACE_S = 0.02
"""How long behind its deadline a matching may end with what it found out by then."""


@dataclass(frozen=True, slots=True)
class MatchKeys:
    """Find out how many leading blocks are there."""

    prefix: Prefix


@dataclass(frozen=True, slots=True)
class LoadBlocks:
    """Load blocks into their slots."""

    prefix: Prefix
    loads: tuple[Load, ...]


@dataclass(frozen=True, slots=True)
class FindState:
    """Find and load the last state at or before the end."""

    prefix: Prefix


Work = MatchKeys | LoadBlocks | FindState


class Desk:
    """All prefixes.

    Args:
        loads: of each group.
        batch_blocks: blocks in a call of the store.
        tell: sends a message to the engine.
        used: told a group and keys of blocks that were fetched for a class of traffic.
    """

    def __init__(
        self,
        loads: Mapping[str, Loads],
        batch_blocks: int,
        tell: Callable[[FromFetcher], None],
        used: Callable[[str, list[bytes], str], None],
    ) -> None:
        self._loads = loads
        self._batch_blocks = batch_blocks
        self._tell, self._used = tell, used
        self._prefixes: dict[int, Prefix] = {}
        self._matching: deque[Prefix] = deque()
        self._loading: deque[Prefix] = deque()
        self._states: deque[Prefix] = deque()

    def __len__(self) -> int:
        return len(self._prefixes)

    def seek(self, seek: Seek) -> None:
        """A prefix is wanted."""
        prefix = self._prefixes[seek.ticket] = prefix_of(seek)
        if len(prefix.keys) == seek.has:
            self.matched(prefix, Match(0, "", 0))
        else:
            self._matching.append(prefix)

    def refuse(self, seek: Seek, reason: str) -> None:
        """A prefix is wanted in vain."""
        self._tell(Over(seek.ticket, reason))

    def give_up(self, ticket: int) -> None:
        """A prefix is not wanted any more; nothing is said about it from now on."""
        prefix = self._prefixes.get(ticket)
        if prefix is not None:
            self._forget(prefix)

    def blocks_work(self) -> Work | None:
        """What to ask the store for next; None: nothing now."""
        while self._matching:
            prefix = self._matching.popleft()
            if prefix.stage == "match":
                return MatchKeys(prefix)
        for _ in range(len(self._loading)):
            prefix = self._loading.popleft()
            if prefix.stage != "blocks" or prefix.asked == prefix.end:
                continue  # it comes back if something has to be asked for again
            self._loading.append(prefix)
            if prefix.in_flight < _AHEAD and (loads := self._batch(prefix)):
                prefix.in_flight += 1
                return LoadBlocks(prefix, loads)
        return None

    def state_work(self) -> Work | None:
        """What to ask the store of states for next; None: nothing now."""
        while self._states:
            prefix = self._states.popleft()
            if prefix.stage == "state":
                return FindState(prefix)
        return None

    def matched(self, prefix: Prefix, found: Match) -> None:
        """How many leading blocks are there."""
        if prefix.stage != "match":
            return
        prefix.end = prefix.seek.has + found.blocks
        prefix.reason = found.reason
        self._tell(Known(prefix.ticket, found.blocks, found.probes))
        prefix.stage = "blocks"
        self._loading.append(prefix)
        self._advance(prefix)

    def loaded(self, work: LoadBlocks, outcomes: Sequence[str]) -> None:
        """What became of blocks."""
        work.prefix.in_flight -= 1
        loads = self._loads[work.prefix.seek.group]
        for load, outcome in zip(work.loads, outcomes, strict=True):
            loads.end(load, outcome)
        for prefix in list(self._prefixes.values()):
            self._advance(prefix)

    def begin_state(self, prefix: Prefix, place: int) -> Load | None:
        """The state behind a block of a prefix; None: no slot is empty, or it is over."""
        if prefix.stage != "state" or prefix.seek.state_group is None:
            return None
        return self._loads[prefix.seek.state_group].begin(prefix.keys[place], prefix.ticket)

    def state_loaded(self, prefix: Prefix, load: Load, place: int, outcome: str) -> bool:
        """What became of a state; whether it is settled."""
        group = prefix.seek.state_group or ""
        self._loads[group].end(load, outcome)
        if prefix.stage != "state":
            if outcome == "hit":
                self._loads[group].leave(load)
            return True
        if outcome != "hit":
            return False
        self._tell(_came(prefix, group, place, [load], is_state=True))
        prefix.has_state = True
        self._finish(prefix)
        return True

    def no_state(self, prefix: Prefix) -> None:
        """There is none, or none could be had."""
        if prefix.stage == "state":
            self._finish(prefix)

    def returned(self, group: str, numbers: Sequence[int]) -> None:
        """Slots were read."""
        for number in numbers:
            self._loads[group].return_slot(number)

    def expire(self, now_s: float) -> bool:
        """End what is late; whether anything was."""
        before = len(self._prefixes)
        for prefix in list(self._prefixes.values()):
            if prefix.stage == "match" and now_s >= prefix.seek.match_by_s + _MATCH_GRACE_S:
                prefix.reason = "timeout"
                self._finish(prefix)
            elif now_s >= prefix.seek.fetch_by_s and prefix.stage != "match":
                if prefix.stage == "blocks":
                    waits_for_slots = prefix.asked < prefix.end and not prefix.loads
                    prefix.cut("full" if waits_for_slots else "timeout")
                self._finish(prefix)
        return len(self._prefixes) < before

    def next_deadline_s(self) -> float | None:
        """When something is late, if nothing happens before."""
        return min(
            (
                one.seek.match_by_s + _MATCH_GRACE_S
                if one.stage == "match"
                else one.seek.fetch_by_s
                for one in self._prefixes.values()
            ),
            default=None,
        )

    def _batch(self, prefix: Prefix) -> tuple[Load, ...]:
        """The next blocks to load for a prefix; blocks on their way for others it joins."""
        loads = self._loads[prefix.seek.group]
        batch: list[Load] = []
        while prefix.asked < prefix.end and len(batch) < self._batch_blocks:
            key = prefix.keys[prefix.asked]
            load = loads.join(key)
            if load is None:
                load = loads.begin(key, prefix.ticket)
                if load is None:
                    break
                batch.append(load)
            prefix.loads.append(load)
            prefix.asked += 1
        if not batch:
            self._advance(prefix)
        return tuple(batch)

    def _advance(self, prefix: Prefix) -> None:
        """Tell of what has come, and end a prefix that is complete or cut short."""
        if prefix.stage != "blocks":
            return
        first, came = prefix.told, []
        while prefix.loads and prefix.loads[0].outcome == "hit":
            came.append(prefix.loads.popleft())
        if came:
            prefix.told += len(came)
            self._tell(_came(prefix, prefix.seek.group, first, came))
        if prefix.loads and (outcome := prefix.loads[0].outcome):
            is_others = prefix.loads[0].owner != prefix.ticket
            self._leave_loads(prefix)
            if outcome == "timeout" and is_others:
                prefix.asked = prefix.told
                if prefix not in self._loading:
                    self._loading.append(prefix)
                return
            prefix.cut(outcome)
        if prefix.told == prefix.end:
            self._blocks_done(prefix)

    def _blocks_done(self, prefix: Prefix) -> None:
        if prefix.told == 0 or prefix.seek.state_group is None:
            self._finish(prefix)
        else:
            prefix.stage = "state"
            self._states.append(prefix)

    def _finish(self, prefix: Prefix) -> None:
        seek = prefix.seek
        self._used(seek.group, prefix.keys[seek.has : prefix.told], seek.retention)
        is_empty = prefix.told == prefix.seek.has and not prefix.has_state
        self._tell(Over(prefix.ticket, prefix.reason or ("miss" if is_empty else "done")))
        self._forget(prefix)

    def _forget(self, prefix: Prefix) -> None:
        prefix.stage = "over"
        del self._prefixes[prefix.ticket]
        self._leave_loads(prefix)

    def _leave_loads(self, prefix: Prefix) -> None:
        loads = self._loads[prefix.seek.group]
        while prefix.loads:
            loads.leave(prefix.loads.popleft())


def _came(
    prefix: Prefix, group: str, first: int, loads: Sequence[Load], *, is_state: bool = False
) -> Came:
    slots = [(load.slot, load.generation) for load in loads]
    remote = [place for place, load in enumerate(loads) if load.is_remote]
    return Came(prefix.ticket, group, first, slots, is_state, remote)
