"""Did any engine of a test lose a block or a slot?

A pytest plugin: ``pytest -p deepinfer_core.testing.integrity``, or name it in ``pytest_plugins``.
After each test it compares the books of every engine that the test made, and of every older one
that still lives, with what their sequences hold; what does not match fails the test. Books that an
engine is about to forget, because it is reset or closed, are compared before.

``@pytest.mark.breaks_integrity`` is for tests that damage books on purpose.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, ref

import pytest

from deepinfer_core.engine.batch import Batch
from deepinfer_core.engine.core import Engine
from deepinfer_core.errors import EngineError

__all__ = ["IntegrityWatch"]

_PATIENCE_S = 0.5
"""An engine whose thread is in the middle of a step is consistent again when the step ends."""

_PAUSE_S = 0.02


class IntegrityWatch:
    """Knows the queues of all engines of a process, and what was wrong with them.

    Engines themselves are not kept alive, so that a test can see that a closed one gave its memory
    back. Queues that a test made are kept until its end: most of their engines are gone by then.

    An engine knows what its step under way holds. Where none is there to say, state slots that are
    set apart are taken to be such a step's; so they are when queues are cleared, which may follow
    an interrupt in the middle of a step.
    """

    def __init__(self) -> None:
        self._living: WeakSet[Batch] = WeakSet()
        self._recent: list[Batch] = []
        self._found: list[str] = []
        self._engines: WeakKeyDictionary[Batch, ReferenceType[Engine]] = WeakKeyDictionary()
        self._replaced = (Batch.__init__, Batch.clear, Engine.__init__)

    def install(self) -> None:
        """Watch every engine that is made from now on."""
        watch, (construct, clear, begin) = self, self._replaced

        def watched_construct(self: Batch, *arguments: Any, **keywords: Any) -> None:
            construct(self, *arguments, **keywords)
            watch._living.add(self)
            watch._recent.append(self)

        def watched_clear(self: Batch) -> None:
            if self in watch._living and (problem := _problem(self)) is not None:
                watch._found.append(problem)  # not while it is constructed
            clear(self)

        def watched_begin(self: Engine, *arguments: Any, **keywords: Any) -> None:
            begin(self, *arguments, **keywords)
            watch._engines[self.batch] = ref(self)

        Batch.__init__, Batch.clear = watched_construct, watched_clear  # type: ignore[method-assign]
        Engine.__init__ = watched_begin  # type: ignore[method-assign]

    def uninstall(self) -> None:
        """Watch no more."""
        Batch.__init__, Batch.clear, Engine.__init__ = self._replaced  # type: ignore[method-assign]

    def problems(self) -> list[str]:
        """What was wrong since the last call, and what is wrong now."""
        for batch in tuple(self._living):
            self._check(batch)
        found, self._found = list(dict.fromkeys(self._found)), []
        self._recent.clear()
        return found

    def forget(self) -> None:
        """Let go of what was found, and of every engine that is damaged."""
        for batch in tuple(self._living):
            if self._problem(batch) is not None:
                self._living.discard(batch)
        self._found.clear()
        self._recent.clear()

    def _check(self, batch: Batch) -> None:
        deadline_s = time.monotonic() + _PATIENCE_S
        while (problem := self._problem(batch)) is not None:
            if time.monotonic() >= deadline_s:
                self._found.append(problem)
                return
            time.sleep(_PAUSE_S)

    def _problem(self, batch: Batch) -> str | None:
        known = self._engines.get(batch)
        return _problem(batch, None if known is None else known())


def _problem(batch: Batch, engine: Engine | None = None) -> str | None:
    try:
        if engine is not None:
            engine.check_integrity()
        else:
            batch.check_integrity(None)
    except (EngineError, RuntimeError) as error:  # a dict that changes while it is looked through
        return str(error)
    return None


_WATCH: pytest.StashKey[IntegrityWatch] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """Begin to watch."""
    config.addinivalue_line("markers", "breaks_integrity: damages an engine's books on purpose")
    config.stash[_WATCH] = watch = IntegrityWatch()
    watch.install()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Watch no more."""
    config.stash[_WATCH].uninstall()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that would pass, if an engine's books are wrong at its end."""
    watch = item.config.stash[_WATCH]
    try:
        outcome = yield
    except BaseException:
        watch.forget()  # the test has failed anyway, and perhaps in the middle of a change
        raise
    if item.get_closest_marker("breaks_integrity") is not None:
        watch.forget()
        return outcome
    if problems := watch.problems():
        watch.forget()
        pytest.fail("an engine lost count: " + "; ".join(problems), pytrace=False)
    return outcome
