"""What do all children say to one question, and which of their numbers is that of the whole?

A block is there while k of n = k + m children have a fragment: so of what they have, the k-th
largest number counts, and of what went, the one behind the m largest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

from deepinfer_core.interfaces.kv_store import BlockGroup, Outcome, Status, StoreReport
from deepinfer_core.stores.calls import Tally, seconds_until
from deepinfer_core.stores.erasure.child import Child, ChildFailed
from deepinfer_core.stores.erasure.fragments import Shape
from deepinfer_core.stores.records import record_bytes

__all__ = ["ask_all", "merged_report", "numbers", "ranked", "summed_up"]

_ORDER: tuple[Status, ...] = ("timeout", "unavailable", "corrupt", "version", "miss")

Answer = TypeVar("Answer")


def ask_all(
    children: Sequence[Child],
    kind: str,
    blocks: int,
    call: Callable[[Child], Answer],
    deadline_s: float,
) -> dict[int, Answer | ChildFailed]:
    """Have every child make a call, side by side.

    Returns:
        By child what came of it; those that have not answered by the deadline are missing.

    Raises:
        ValueError: a child says that the call makes no sense.
    """
    answers: SimpleQueue[tuple[int, Answer | ChildFailed]] = SimpleQueue()
    waiting = sum(
        child.ask(kind, blocks, call, lambda answer, number=number: answers.put((number, answer)))  # type: ignore[misc]
        for number, child in enumerate(children)
    )
    found: dict[int, Answer | ChildFailed] = {}
    while len(found) < waiting:
        try:
            number, answer = answers.get(timeout=seconds_until(deadline_s))
        except Empty:
            break
        if isinstance(answer, ChildFailed) and isinstance(answer.__cause__, ValueError):
            raise answer.__cause__
        found[number] = answer
    return found


def numbers(found: Mapping[int, int | ChildFailed | None]) -> list[int]:
    """What children said that answered with a number."""
    return [one for one in found.values() if isinstance(one, int)]


def ranked(counts: Sequence[int], place: int) -> int:
    """The number at a place, the largest first; 0 if there are fewer."""
    return sorted(counts, reverse=True)[place] if place < len(counts) else 0


def merged_report(
    children: Sequence[Child],
    groups: Mapping[str, BlockGroup],
    data: int,
    tally: Tally,
    work: Mapping[str, int],
    alone: Mapping[tuple[int, str], int],
) -> StoreReport:
    """The report of all children.

    Fragments that children discarded are left out of what they removed: most are those of blocks
    that never were, and the store counts the others itself.
    Bytes are those of blocks: what redundancy and the headers of fragments take is left out, as it
    is for the largest group. The fullest child counts, for it is the first to be full. Parts tell
    their own bytes.

    Args:
        children: all of them.
        groups: of blocks, by name.
        data: pieces of data, k.
        tally: what the store counts itself.
        work: what it did beside calls.
        alone: blocks, by child and reason, that only a few children let go, which the tally has.
    """
    parity = len(children) - data
    reports = [child.store.report() for child in children]
    group = max(groups.values(), key=lambda one: one.block_bytes)
    shape = Shape(group=group, data=data, parity=parity)
    share = record_bytes(group) / record_bytes(shape.fragment_group)
    working = [one for one in reports if not one.problem] or reports
    capacity_bytes = min(one.capacity_bytes for one in working) * share
    reasons = {reason for one in reports for reason in one.removed} - {"discarded"}
    removed = {
        reason: count
        for reason in sorted(reasons)
        if (
            count := ranked(
                [
                    max(one.removed.get(reason, 0) - alone.get((number, reason), 0), 0)
                    for number, one in enumerate(reports)
                ],
                parity,
            )
        )
    }
    fullest = max(working, key=lambda one: one.used_bytes)
    problems = Counter(
        f"{child.title}: {problem}"
        for child, report in zip(children, reports, strict=True)
        if (problem := child.refused or report.problem or child.problem)
    )
    return StoreReport(
        records=ranked([one.records for one in reports], data - 1),
        used_bytes=int(fullest.used_bytes * share),
        capacity_bytes=int(capacity_bytes),
        high_bytes=int(min(one.high_bytes for one in working) * share),
        outcomes=tally.outcomes(),
        removed=dict(Counter(removed) + Counter(tally.removed())),
        ages=fullest.ages,
        problem="; ".join(problems),
        work=work,
        parts={
            f"children.{number}": report
            for number, (child, report) in enumerate(zip(children, reports, strict=True))
            if child.store.groups
        },
    )


def summed_up(failed: Sequence[Outcome], spared: int) -> Outcome:
    """Why a block cannot be had.

    Args:
        failed: outcomes of the children that have not got it.
        spared: of them so many would do no harm, m; a miss of more than that is one, and so is any
            where no more than that are unavailable: the store works, and can be given the block.
    """
    misses = [one for one in failed if one.status == "miss"]
    silent = [one.status for one in failed if one.status in ("timeout", "unavailable")]
    does_work = len(silent) <= spared and "timeout" not in silent
    if len(misses) > spared or (misses and does_work and len(misses) + len(silent) > spared):
        return misses[0]
    return min(failed, key=lambda one: _ORDER.index(one.status))
