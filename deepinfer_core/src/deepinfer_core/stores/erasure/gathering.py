"""Which k answers of n children come first, and whom is asked next when one is late?

k + 1 children are asked at first for each block. Another is asked when one of them fails, or has
taken longer than it usually does; and what is enough ends the waiting. What an answer is worth is
said by whoever gathers: fragments that fit together, or that they exist.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from deepinfer_core.interfaces.kv_store import Outcome
from deepinfer_core.stores.calls import LATE, seconds_until
from deepinfer_core.stores.erasure.asking import Asked, Call
from deepinfer_core.stores.erasure.child import Child, ChildFailed
from deepinfer_core.stores.erasure.frames import Frames

__all__ = ["Gathering", "Patience"]

_BUSY = Outcome(status="unavailable", reason="a child has too much to do")
_HUNG = Outcome(status="unavailable", reason="a child does not answer")
_RAISED = Outcome(status="unavailable", reason="a child raised an error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long children are waited for.

    Attributes:
        least_s: before another is asked.
        hedge_s: at most, before another is asked, however long this one usually takes.
        most_s: before a child counts as unavailable.
    """

    least_s: float = 0.005
    hedge_s: float = 0.05
    most_s: float = 10.0

    def soon(self) -> float:
        """The deadline of what is done on the side."""
        return time.monotonic() + self.most_s


class Gathering(ABC):
    """Asks for blocks, once.

    Args:
        children: all of them.
        patience: see there.
        orders: for each block the children in the order in which they are asked.
        frames: memory that calls use, until the last of them has ended; None: none.

    Attributes:
        asked: children that were asked, summed over blocks.
        hedged: how often another child was asked because one was late.
    """

    kind = "load"

    def __init__(
        self,
        children: Sequence[Child],
        patience: Patience,
        orders: Sequence[Sequence[int]],
        frames: Frames | None = None,
    ) -> None:
        self.asked = self.hedged = 0
        self._children, self._patience, self._frames = children, patience, frames
        self._blocks = [
            Asked(place=place, reserve=list(reversed(order))) for place, order in enumerate(orders)
        ]
        self._calls: dict[int, Call] = {}
        self._answers: SimpleQueue[tuple[int, list[Outcome] | ChildFailed]] = SimpleQueue()
        self._next_call = 0
        self._open = set(range(len(orders)))
        self._touched = set(self._open)
        self._lock = threading.Lock()
        self._is_over = False

    @abstractmethod
    def _make_call(
        self, asked: Child, child: int, places: Sequence[int], deadline_s: float
    ) -> list[Outcome]:
        """Ask a child, in a thread of its own, which may end long after everything else."""

    @abstractmethod
    def _take(self, child: int, place: int, outcome: Outcome) -> Outcome | None:
        """Take what a child has done for a block; an outcome: it is worth nothing."""

    @abstractmethod
    def _is_enough(self, block: Asked) -> bool:
        """Whether a block needs no more answers."""

    @abstractmethod
    def _could_be_enough(self, block: Asked) -> bool:
        """Whether answers that are still to come, or can be asked for, may be enough."""

    @abstractmethod
    def _answered_late(self, call: Call, outcomes: list[Outcome] | ChildFailed) -> None:
        """Hear what nobody waited for, in a thread of the child."""

    def gather(self, first: int, deadline_s: float) -> None:
        """Ask until each block has enough, cannot have it, or the deadline has passed.

        Args:
            first: children that are asked at once for each block.
            deadline_s: of all calls.

        Raises:
            ValueError: a child says that the call makes no sense.
        """
        self._ask(dict.fromkeys(range(len(self._blocks)), first), deadline_s)
        self._settle(deadline_s)
        while self._open and (now_s := time.monotonic()) < deadline_s:
            self._ask(self._late_calls(now_s), deadline_s)
            self._settle(deadline_s)
            if self._open:
                self._hear(deadline_s)
                self._settle(deadline_s)
        for place in self._open:
            block = self._blocks[place]
            for child in block.pending:
                block.failed[child] = LATE
            block.failed.setdefault(-1, LATE)

    def finish(self) -> None:
        """Wait no more: what comes from now on is late."""
        with self._lock:
            self._is_over = True
        while not self._answers.empty():
            number, outcomes = self._answers.get()
            if (call := self._calls.pop(number, None)) is not None:
                self._answered_late(call, outcomes)

    def is_late(self, child: int) -> bool:
        """Whether a child has a call that takes longer than usual."""
        return any(call.is_late for call in self._calls.values() if call.child == child)

    def _hear(self, deadline_s: float) -> None:
        """Take one answer, or return when somebody is late."""
        try:
            wait_s = seconds_until(min(self._next_s(), deadline_s))
            number, outcomes = self._answers.get(timeout=wait_s)
        except Empty:
            return
        self._ask(self._answered(number, outcomes), deadline_s)

    def _settle(self, deadline_s: float) -> None:
        """Look at the blocks of which something is new: which need more, and may get it?"""
        while self._touched:
            looked_at, self._touched = self._touched & self._open, set()
            more: dict[int, int] = {}
            for place in looked_at:
                block = self._blocks[place]
                if self._is_enough(block) or not self._could_be_enough(block):
                    block.is_done = True
                    self._open.discard(place)
                elif not block.pending:
                    # All have answered, and their fragments do not fit together.
                    more[place] = 1
            self._ask(more, deadline_s)

    def _ask(self, more: dict[int, int], deadline_s: float) -> None:
        """Ask so many more children for blocks; a busy one is passed over."""
        while more:
            by_child: dict[int, list[int]] = {}
            for place, count in more.items():
                block = self._blocks[place]
                for _ in range(min(count, len(block.reserve))):
                    by_child.setdefault(block.reserve.pop(), []).append(place)
            more = {}
            for child, places in by_child.items():
                if self._start(child, places, deadline_s):
                    continue
                self._touched.update(places)
                for place in places:
                    self._blocks[place].failed[child] = _BUSY
                    more[place] = more.get(place, 0) + 1

    def _start(self, child: int, places: list[int], deadline_s: float) -> bool:
        number, since_s = self._next_call, time.monotonic()
        self._next_call += 1
        patience, one = self._patience, self._children[child]
        usual_s = one.usual_s(self.kind, len(places))
        wait_s = max(min(usual_s or patience.hedge_s, patience.hedge_s), patience.least_s)
        call = Call(child=child, places=places, since_s=since_s, late_at_s=since_s + wait_s)
        self._calls[number] = call
        for place in places:
            self._blocks[place].pending.add(child)
        if self._frames is not None:
            self._frames.hold()
        is_asked = one.ask(
            self.kind,
            len(places),
            lambda asked: self._make_call(asked, child, places, deadline_s),
            lambda outcomes: self._put(number, call, outcomes),
        )
        if not is_asked:
            self._let_go()
            del self._calls[number]
            for place in places:
                self._blocks[place].pending.discard(child)
        self.asked += len(places) if is_asked else 0
        return is_asked

    def _put(self, number: int, call: Call, outcomes: list[Outcome] | ChildFailed) -> None:
        with self._lock:
            is_over = self._is_over
            if not is_over:
                self._answers.put((number, outcomes))
        if is_over:
            self._answered_late(call, outcomes)
        self._let_go()

    def _let_go(self) -> None:
        if self._frames is not None:
            self._frames.release()

    def _late_calls(self, now_s: float) -> dict[int, int]:
        """Blocks that one more child is asked for, as one of theirs is late."""
        more: dict[int, int] = {}
        for number, call in list(self._calls.items()):
            if now_s >= call.since_s + self._patience.most_s:
                del self._calls[number]
                more |= self._fail(call, [_HUNG] * len(call.places))
            elif not call.is_late and now_s >= call.late_at_s:
                call.is_late = True
                self._touched |= self._open
                for place in call.places:
                    if not self._blocks[place].is_done and self._blocks[place].reserve:
                        more[place] = 1
                        self.hedged += 1
        return more

    def _next_s(self) -> float:
        """When a call is late next."""
        return min(
            (
                call.since_s + self._patience.most_s if call.is_late else call.late_at_s
                for call in self._calls.values()
            ),
            default=0.0,
        )

    def _answered(self, number: int, outcomes: list[Outcome] | ChildFailed) -> dict[int, int]:
        """Blocks that one more child is asked for, as this one has not got them."""
        call = self._calls.pop(number, None)
        if call is None:
            return {}
        if isinstance(outcomes, ChildFailed):
            if isinstance(outcomes.__cause__, ValueError):
                self._leave_nobody_behind()
                raise outcomes.__cause__
            outcomes = [_RAISED] * len(call.places)
        if any(one.status == "unavailable" for one in outcomes):
            self._children[call.child].mark_down()
        return self._fail(call, outcomes)

    def _leave_nobody_behind(self) -> None:
        """Let others say that a call makes no sense, too, before more such calls are made."""
        deadline_s = time.monotonic() + self._patience.hedge_s
        with suppress(Empty):
            while self._calls:
                number, _ = self._answers.get(timeout=seconds_until(deadline_s))
                self._calls.pop(number, None)

    def _fail(self, call: Call, outcomes: Sequence[Outcome]) -> dict[int, int]:
        """Take what is good of an answer; blocks that are worth asking another child for."""
        more: dict[int, int] = {}
        self._touched.update(call.places)
        for place, outcome in zip(call.places, outcomes, strict=True):
            block = self._blocks[place]
            block.pending.discard(call.child)
            problem: Outcome | None = outcome
            if outcome.status in ("hit", "stored", "exists"):
                problem = self._take(call.child, place, outcome)
            if problem is not None:
                block.failed[call.child] = problem
                if not block.is_done and self._could_be_enough(block):
                    more[place] = 1
        return more
