"""How do warp groups that wait for each other run?

Each ``T.ws`` branch of a sequence is a role with its own masks and variables. Exactly one role runs
at a time, until it waits for a barrier whose phase is not complete; then the next role goes on. A
barrier counts the lanes that arrive, so a missing arrival ends in a message instead of a hang, and
a buffer that is refilled too early shows in the result. What happens between two waits is atomic
here: races inside such a stretch stay invisible.
"""

import contextvars
from collections.abc import Callable, Sequence
from threading import Condition, Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepinfer_core.testing.tiles.faults import BarrierStall, UnknownTileOperation
from deepinfer_core.testing.tiles.memory import LaneMemory
from deepinfer_core.testing.tiles.run import Run
from deepinfer_core.testing.tiles.scope import Evaluate, Perform, Scope

__all__ = ["BARRIERS", "Role", "is_role", "together"]

Array = NDArray[Any]
Translate = Callable[[Scope, Any], Evaluate]


class Barrier:
    """One phase barrier: it flips its phase when the expected arrivals are in."""

    __slots__ = ("expected", "missing", "phase")

    def __init__(self, expected: int) -> None:
        self.expected = self.missing = expected
        self.phase = 0

    def arrive(self, count: int) -> None:
        """Count arrivals; complete the phase when none is missing."""
        self.missing -= count
        while self.missing <= 0:
            self.missing += self.expected
            self.phase ^= 1

    def passed(self, parity: int) -> bool:
        """Whether the phase of this parity is complete."""
        return self.phase != parity & 1


class Stage:
    """Who may run: roles take turns, and only a barrier passes the turn on."""

    def __init__(self, count: int) -> None:
        self.changed = Condition()
        self.turn = 0
        self.alive = list(range(count))
        self.waiting: dict[int, Callable[[], bool]] = {}
        self.failure: BaseException | None = None

    def my_turn(self, role: int) -> None:
        """Block until this role may run."""
        with self.changed:
            self.changed.wait_for(lambda: self.turn == role or self.failure is not None)
        if self.failure is not None:
            raise StoppedRole

    def wait(self, role: int, ready: Callable[[], bool]) -> None:
        """Hand the turn on until ``ready``."""
        if ready():
            return
        self.waiting[role] = ready
        self.hand_on(role)
        self.my_turn(role)

    def hand_on(self, role: int) -> None:
        """Give the turn to the next role that can run."""
        with self.changed:
            order = [one for one in self.alive if one > role] + list(self.alive)
            ready = [one for one in order if one not in self.waiting or self.waiting[one]()]
            if ready:
                self.waiting.pop(ready[0], None)
                self.turn = ready[0]
            elif self.alive and self.failure is None:
                self.failure = BarrierStall(
                    "every warp group waits for a barrier that none of them will complete",
                    hint="compare arrival counts, parities and the order of waits",
                )
            self.changed.notify_all()


class StoppedRole(BaseException):
    """Another role failed; this one ends without a word."""


class Role:
    """One warp group: the threads for which its condition holds, and what they do."""

    __slots__ = ("body", "condition")

    def __init__(self, condition: Evaluate, body: Perform) -> None:
        self.condition, self.body = condition, body

    def members(self, run: Run) -> Array:
        """The thread lanes of the group, which must be neighbours."""
        test = self.condition(run)
        count = run.extents[0]
        taking = np.broadcast_to(test if run.mask is None else test & run.mask, (count,))
        lanes = np.flatnonzero(taking)
        if lanes.size and lanes[-1] - lanes[0] + 1 != lanes.size:
            raise UnknownTileOperation("ws", "a warp group of threads that are not neighbours")
        return lanes

    def part(self, run: Run, lanes: Array) -> Run:
        """The group's own state: its threads are all lanes there are, with their own memory."""
        part, count = run.split(), run.extents[0]
        part.mask, part.extents[0] = None, lanes.size
        part.origins[0] += int(lanes[0])
        for slot, value in enumerate(part.values):
            if isinstance(value, np.ndarray) and value.ndim and value.shape[-1] == count:
                part.values[slot] = value[..., lanes]
        for slot, memory in enumerate(part.memories):
            if isinstance(memory, LaneMemory):
                part.memories[slot] = memory.share(count, lanes)
        return part


def together(roles: Sequence[Role]) -> Perform:
    """The closure that runs several warp groups side by side."""

    def perform(run: Run) -> None:
        groups = [(role, role.members(run)) for role in roles]
        parts = [(role, lanes, role.part(run, lanes)) for role, lanes in groups if lanes.size]
        if len(parts) == 1:
            parts[0][0].body(parts[0][2])
        elif parts:
            side_by_side([(role.body, part) for role, _, part in parts])
        for _, lanes, part in parts:
            for memory, own in zip(run.memories, part.memories, strict=True):
                if isinstance(memory, LaneMemory):
                    memory.take_back(run.extents[0], lanes, own)

    return perform


def side_by_side(parts: Sequence[tuple[Perform, Run]]) -> None:
    """Run closures in turns until all have ended."""
    stage = Stage(len(parts))
    threads = []
    for number, (body, run) in enumerate(parts):
        run.stage, run.role = stage, number
        context = contextvars.copy_context()
        arguments = (play, stage, number, body, run)
        threads.append(Thread(target=context.run, args=arguments, daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if stage.failure is not None:
        raise stage.failure


def play(stage: Stage, number: int, body: Perform, run: Run) -> None:
    try:
        stage.my_turn(number)
        body(run)
    except StoppedRole:
        return
    except BaseException as failure:  # noqa: BLE001 - it is raised again by the run's own thread
        stage.failure = stage.failure or failure
    stage.alive.remove(number)
    stage.hand_on(number)


def is_role(node: Any) -> bool:
    """Whether a statement is the branch of a warp group."""
    if type(node).__name__ != "IfThenElse":
        return False
    first = node.then_case
    if type(first).__name__ == "SeqStmt":
        first = first.seq[0]
    return type(first).__name__ == "AttrStmt" and str(first.attr_key) == "warp_specialize"


def barrier_of(scope: Scope, node: Any, translate: Translate) -> Callable[[Run], Barrier]:
    """The barrier that a call names."""
    load = node.args[0]
    allocation = scope.allocations[load.buffer.data]
    counts = scope.arrivals[load.buffer.data]
    index, slot = translate(scope, load.indices[0]), allocation.slot

    def find(run: Run) -> Barrier:
        number = index(run)
        held: dict[int, Barrier] = run.barriers
        key = slot * 4096 + number
        if key not in held:
            held[key] = Barrier(counts[number])
        return held[key]

    return find


def arrive(scope: Scope, node: Any, translate: Translate) -> Perform:
    barrier = barrier_of(scope, node, translate)

    def perform(run: Run) -> None:
        mask = np.ones((), bool) if run.mask is None else run.mask
        everyone = tuple(run.extents[2::-1])
        lanes = np.broadcast_to(mask, np.broadcast_shapes(mask.shape, everyone))
        barrier(run).arrive(int(lanes.sum()))

    return perform


def wait(scope: Scope, node: Any, translate: Translate) -> Perform:
    barrier, parity = barrier_of(scope, node, translate), translate(scope, node.args[1])

    def perform(run: Run) -> None:
        held, wanted = barrier(run), int(parity(run))
        if run.stage is not None:
            run.stage.wait(run.role, lambda: held.passed(wanted))
        elif not held.passed(wanted):
            raise BarrierStall("the program waits for a barrier phase that nobody completed")

    return perform


def expect(scope: Scope, node: Any, translate: Translate) -> Perform:
    """Bytes are announced: copies here are complete at once, so nothing is left to wait for."""
    return lambda run: None


BARRIERS: dict[str, Callable[[Scope, Any, Translate], Perform]] = {
    "tl.mbarrier_wait_parity": wait,
    "tl.mbarrier_expect_tx": expect,
    "tirx.ptx_arrive_barrier": arrive,
    "tl.ptx_cp_async_barrier_noinc": arrive,
}
