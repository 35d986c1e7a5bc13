"""How many sequences may the bearer of one key ask for at once, and in a minute?

Most calls ask for one; one that asks for several answers, or has several prompts, counts as often.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

from deepinfer_core.server.refusals import Refused

__all__ = ["Claim", "KeyLimits"]

_WINDOW_S = 60.0


class KeyLimits:
    """Counts sequences of each key; without keys all are of one.

    Args:
        max_in_work: of one key; None: no limit.
        per_minute: of one key in any minute; None: no limit.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        max_in_work: int | None,
        per_minute: int | None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._max_in_work = max_in_work
        self._per_minute = per_minute
        self._clock = clock
        self._in_work: Counter[str] = Counter()
        self._recent: dict[str, _Recent] = {}

    @contextmanager
    def taken(self, label: str) -> Iterator[Claim]:
        """Count a call for as long as it is in work, as one sequence until it claims more.

        Args:
            label: of its key.

        Raises:
            Refused: 429; there are too many.
        """
        claim = Claim(self, label)
        claim.grow(1)
        try:
            yield claim
        finally:
            self._in_work[label] -= claim.sequences

    def take(self, label: str, more: int, whole: int) -> None:
        """Count further sequences of a call; see ``Claim.grow``.

        Args:
            label: of its key.
            more: how many.
            whole: how many the call asks for in all.
        """
        self._check_in_work(label, more, whole)
        self._count(label, more, whole)
        self._in_work[label] += more

    def _check_in_work(self, label: str, more: int, whole: int) -> None:
        most = self._max_in_work
        if most is None:
            return
        if whole > most:
            raise _never(whole, f"a key may have {most} in work")
        if self._in_work[label] + more > most:
            raise Refused(
                429,
                "too_many_in_work",
                f"{self._in_work[label]} sequences of this key are in work, of {most} that may be,"
                f" and {more} more were asked for",
                hint="wait for one of them to end",
            )

    def _count(self, label: str, more: int, whole: int) -> None:
        """Note the time of sequences that are let in."""
        most = self._per_minute
        if most is None:
            return
        if whole > most:
            raise _never(whole, f"a key may have {most} in a minute")
        now_s = self._clock()
        recent = self._recent.setdefault(label, _Recent(deque()))
        recent.forget_until(now_s - _WINDOW_S)
        if recent.sequences + more > most:
            come_again_s = recent.room_since(recent.sequences + more - most) + _WINDOW_S - now_s
            raise Refused(
                429,
                "rate_limit_exceeded",
                f"this key had {recent.sequences} sequences in a minute, of {most} that may be,"
                f" and {more} more were asked for",
                hint="spread them, or wait",
                retry_after_s=max(1, math.ceil(come_again_s)),
            )
        recent.add(now_s, more)


@dataclass(slots=True)
class Claim:
    """What one call takes.

    Attributes:
        limits: that it counts against.
        label: of its key.
        sequences: that it has.
    """

    limits: KeyLimits
    label: str
    sequences: int = 0

    def grow(self, sequences: int) -> None:
        """Have so many sequences in all.

        Raises:
            Refused: 429 if there are too many now, 400 if there are always.
        """
        more = sequences - self.sequences
        if more > 0:
            self.limits.take(self.label, more, sequences)
            self.sequences = sequences


@dataclass(slots=True)
class _Recent:
    """Sequences of the last minute: when, and how many."""

    moments: deque[tuple[float, int]]
    sequences: int = 0

    def add(self, now_s: float, sequences: int) -> None:
        self.moments.append((now_s, sequences))
        self.sequences += sequences

    def forget_until(self, moment_s: float) -> None:
        while self.moments and self.moments[0][0] <= moment_s:
            self.sequences -= self.moments.popleft()[1]

    def room_since(self, wanted: int) -> float:
        """When the last of the oldest ``wanted`` sequences was let in."""
        for moment_s, sequences in self.moments:
            wanted -= sequences
            if wanted <= 0:
                return moment_s
        raise AssertionError("more are wanted than there are")


def _never(whole: int, limit: str) -> Refused:
    return Refused(
        400,
        "too_many_sequences",
        f"the call asks for {whole} sequences, and {limit}",
        hint="ask for fewer in one call",
    )
