"""How are runs compared on a machine that does other things too? They take turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["alternately", "each", "elsewhere", "medians", "seconds_of"]

Load = TypeVar("Load")


@contextmanager
def elsewhere() -> Iterator[Callable[..., None]]:
    """Runs what it is given in one thread of its own, as a fetcher writes, for a ``with``.

    The first thread of a process is no place to measure writing in: glibc gives what LMDB frees
    there back to the system with each commit, and the next one takes a page fault for every page.
    """
    with ThreadPoolExecutor(1) as thread:

        def run(act: Callable[..., object], *arguments: object) -> None:
            thread.submit(act, *arguments).result()

        yield run


def each(loads: Sequence[Load], act: Callable[[Load], object]) -> Callable[[], None]:
    """A run of something with each load."""

    def run() -> None:
        for load in loads:
            act(load)

    return run


def alternately(
    repeats: int,
    before: Mapping[str, Callable[[], object]] | None = None,
    **runs: Callable[[], object],
) -> dict[str, float]:
    """Median seconds of each run; a round before all others warms up and does not count.

    Args:
        repeats: rounds that count.
        before: what is done before a run, which takes no time of it.
        runs: one behind the other in every round.
    """
    took_s: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(repeats + 1):
        for name, run in runs.items():
            (before or {}).get(name, lambda: None)()
            seconds = seconds_of(run)
            if number:
                took_s[name].append(seconds)
    return medians(took_s)


def seconds_of(run: Callable[..., object], *arguments: object) -> float:
    """How long one run takes."""
    began_s = time.perf_counter()
    run(*arguments)
    return time.perf_counter() - began_s


def medians(took_s: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median of each list."""
    return {name: statistics.median(found) for name, found in took_s.items()}
