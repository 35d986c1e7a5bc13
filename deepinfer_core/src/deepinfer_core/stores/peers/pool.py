"""Who has which blocks, and how do they come here?

The questions of one call go to all members that are concerned at the same time. Who does not answer
is passed over: a block that cannot be found is one that must be computed.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from deepinfer_core.errors import EngineError
from deepinfer_core.interfaces.kv_store import BlockGroup, Outcome
from deepinfer_core.stores.calls import LATE, MISS, is_late
from deepinfer_core.stores.peers.announcer import BEATS
from deepinfer_core.stores.peers.directory import Directory, registrars
from deepinfer_core.stores.peers.links import Links, Unreachable
from deepinfer_core.stores.peers.messages import Announce, Drop, Heard, Locate, Pull, Withdraw
from deepinfer_core.stores.record_reader import RecordReader

__all__ = ["Pool"]

_BYTES_AT_ONCE = 16 << 20
"""Of blocks in one answer."""

_DROP_S = 30.0

_PULLED = Outcome(status="hit", is_remote=True)


class Pool:
    """The other members, as one member sees them.

    Args:
        name: of this member.
        members: names of all.
        links: to the others.
        directory: what this member knows as a registrar.
        call_s: seconds after which a member that does not answer is passed over.
        beat_s: seconds between announcements.
    """

    def __init__(
        self,
        name: str,
        members: Sequence[str],
        *,
        links: Links,
        directory: Directory,
        call_s: float,
        beat_s: float,
    ) -> None:
        self._name, self._members = name, tuple(members)
        self._links, self._directory = links, directory
        self._call_s, self._beat_s = call_s, beat_s
        self._threads = ThreadPoolExecutor(2 * len(self._members), "deepinfer-peers")

    def close(self) -> None:
        """End the calls that run."""
        self._links.close()
        self._threads.shutdown(cancel_futures=True)

    def registrars(self, key: bytes) -> list[str]:
        """The members that know where a block is."""
        return registrars(self._members, key)

    def announce(self, member: str, group: str, keys: list[bytes]) -> None:
        """Tell a registrar, this member or another one, that blocks are here."""
        seconds = self._beat_s * BEATS
        if member == self._name:
            self._directory.announce(group, keys, self._name, time.monotonic() + seconds)
            return
        with suppress(Unreachable):  # it is told again with the next beat
            self._links.call(member, Announce(group, keys, seconds), self._until())

    def locate(
        self, group: str, keys: Sequence[bytes], deadline_s: float
    ) -> dict[bytes, list[str]]:
        """Other members that have blocks, as far as registrars know."""
        asked: defaultdict[str, list[bytes]] = defaultdict(list)
        for key in keys:
            for member in self.registrars(key):
                asked[member].append(key)
        found: dict[bytes, list[str]] = {}
        own = asked.pop(self._name, [])
        known = self._directory.locate(group, own, time.monotonic())
        questions = {member: Locate(group, some) for member, some in asked.items()}
        answers = self._ask(questions, deadline_s)
        told = [(own, known)] + [
            (asked[member], answer.owners) for member, answer in answers.items()
        ]
        for some, owners in told:
            for key, names in zip(some, owners, strict=True):
                merged = found.setdefault(key, [])
                merged += [one for one in names if one != self._name and one not in merged]
        return {key: names for key, names in found.items() if names}

    def pull(
        self,
        group: BlockGroup,
        destinations: Mapping[bytes, bytearray | memoryview],
        deadline_s: float,
    ) -> dict[bytes, Outcome]:
        """Copy blocks of other members out.

        Returns:
            What became of each: ``hit``, ``miss``, ``corrupt``, ``version`` or ``timeout``.
        """
        outcomes = dict.fromkeys(destinations, MISS)
        owners = self.locate(group.name, list(destinations), deadline_s)
        reader, gone = RecordReader(group), defaultdict[str, list[bytes]](list)
        while owners and not is_late(deadline_s):
            wanted: defaultdict[str, list[bytes]] = defaultdict(list)
            most = max(1, _BYTES_AT_ONCE // group.block_bytes)
            for key, names in owners.items():
                if len(wanted[names[0]]) < most:
                    wanted[names[0]].append(key)
            questions = {name: Pull(group.name, keys) for name, keys in wanted.items()}
            answers = self._ask(questions, deadline_s)
            for name, keys in wanted.items():
                records = answers[name].records if name in answers else [b""] * len(keys)
                for key, record in zip(keys, records, strict=True):
                    outcome = _taken(reader, record, key, destinations[key])
                    if outcome.status == "hit" or not owners[key][1:]:
                        outcomes[key] = outcome
                        del owners[key]
                    else:
                        owners[key] = owners[key][1:]
                    if name in answers and not record:
                        gone[name].append(key)
        self._withdraw(group.name, gone)
        return outcomes | dict.fromkeys(owners, LATE)

    def drop(self, namespace: bytes | None) -> int:
        """Let all others remove blocks.

        Raises:
            EngineError: some did not.
        """
        others = [member for member in self._members if member != self._name]
        questions = {member: Drop(namespace) for member in others}
        answers = self._ask(questions, time.monotonic() + _DROP_S, call_s=_DROP_S)
        silent = [member for member in others if member not in answers]
        if silent:
            raise EngineError(
                f"{', '.join(silent)} did not remove blocks",
                hint="ask again when they can be reached; what they keep in memory ends with them",
            )
        return sum(answer.count for answer in answers.values())

    def problem(self) -> str:
        """Why some of the pool cannot be read; empty: all can."""
        return "; ".join(self._links.problems().values())

    def _ask(
        self, questions: Mapping[str, Heard], deadline_s: float, *, call_s: float | None = None
    ) -> dict[str, Any]:
        """Answers by member, of those that gave one."""
        until_s = min(deadline_s, time.monotonic() + (call_s or self._call_s))

        def call(member: str) -> Any:
            try:
                return self._links.call(member, questions[member], until_s)
            except Unreachable:
                return None

        members = list(questions)
        try:
            many = self._threads.map if len(members) > 1 else map
            answers = list(many(call, members))
        except RuntimeError:  # the store was closed meanwhile
            return {}
        return {
            member: answer
            for member, answer in zip(members, answers, strict=True)
            if answer is not None
        }

    def _withdraw(self, group: str, gone: Mapping[str, list[bytes]]) -> None:
        """Tell registrars what owners have not got any more."""
        for owner, keys in gone.items():
            told: defaultdict[str, list[bytes]] = defaultdict(list)
            for key in keys:
                for member in self.registrars(key):
                    told[member].append(key)
            self._directory.withdraw(group, told.pop(self._name, []), owner)
            self._ask(
                {member: Withdraw(group, some, owner) for member, some in told.items()},
                self._until(),
            )

    def _until(self) -> float:
        return time.monotonic() + self._call_s


def _taken(
    reader: RecordReader, record: bytes, key: bytes, destination: bytearray | memoryview
) -> Outcome:
    if not record:
        return MISS
    return reader.copy(memoryview(record), key, destination) or _PULLED
