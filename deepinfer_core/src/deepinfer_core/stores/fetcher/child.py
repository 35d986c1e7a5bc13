"""Program: what does a fetcher do from its start to its end?

Its arguments are the descriptors of its end of the channel and of the shared memory. It opens the
store that the first message names and serves until it is told to stop. When the channel ends so
does it, at once: nobody is left who could use what it fetches, and what a store has not finished
nobody will find. Should it hold on to the interpreter for long, it is ended as well.

Signals are the engine's, as in the engine's own process.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import pickle
import signal
import socket
import sys
from collections.abc import Iterator
from importlib import import_module
from threading import Lock, Thread, Timer
from typing import NoReturn

from deepinfer_core.channel.frames import ChannelBroken
from deepinfer_core.channel.thread_end import ThreadEnd
from deepinfer_core.config.settings import TelemetrySettings
from deepinfer_core.config.store_options import MemoryStoreOptions
from deepinfer_core.errors import DeepInferError
from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore
from deepinfer_core.plugin.resolved import describe, load
from deepinfer_core.stores.fetcher.endpoint import Endpoint
from deepinfer_core.stores.fetcher.layout import segment_layout
from deepinfer_core.stores.fetcher.messages import (
    ENGINE_LANGUAGE,
    Begin,
    FromFetcher,
    Opened,
    OpenFailed,
    Stop,
    ToFetcher,
)
from deepinfer_core.stores.fetcher.options import TrafficOptions
from deepinfer_core.stores.fetcher.segment import Segment
from deepinfer_core.stores.fetcher.serving import Fetcher
from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.stores.retention import limits_of
from deepinfer_core.telemetry.logs import configure_logging, get_logger

__all__ = ["main"]

_FAILED = 1
_LAST_WORDS_S = 1.0
_CLOSE_S = 5.0
"""How long a store may take to close; then the process ends without that."""

_AGE_STEP_S = 1e-6
"""Of states: so small that no two were used at the same time."""

_End = ThreadEnd[FromFetcher, ToFetcher]


def main() -> NoReturn:
    """Serve one engine."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    if sys.stderr is not None:
        os.dup2(2, 1)
        faulthandler.enable()
    descriptor, memory = map(int, sys.argv[1:])
    os.set_inheritable(descriptor, False)
    os.set_inheritable(memory, False)
    end: _End = ThreadEnd(socket.socket(fileno=descriptor), ENGINE_LANGUAGE.reversed())
    program = _Program(end, memory)
    try:
        program.serve(end.messages())
    except ChannelBroken as error:
        get_logger(__name__).error("channel.broken", reason=str(error))
    program.leave()


class _Program:
    """Listens from the start, so that the channel's end also ends the opening of a store.

    Args:
        end: of the channel.
        memory: descriptor of the shared memory.
    """

    def __init__(self, end: _End, memory: int) -> None:
        self._end, self._memory = end, memory
        self._stores: list[KvStore] = []
        self._lock = Lock()
        self._fetcher: Fetcher | None = None
        self._early: list[ToFetcher] = []
        self._status = _FAILED

    def serve(self, messages: Iterator[ToFetcher]) -> None:
        """Do what the engine says, until it wants nothing more."""
        for message in messages:
            if isinstance(message, Begin):
                Thread(target=self._open, args=(message,), daemon=True).start()
            elif isinstance(message, Stop):
                if self._fetcher is not None:
                    self._fetcher.finish(message)
                self._status = 0
                return
            else:
                self._obey(message)

    def leave(self) -> NoReturn:
        """Close stores, for a while, and end."""
        if self._fetcher is not None:
            Timer(_CLOSE_S, os._exit, (_FAILED,)).start()
            for store in self._stores:
                with contextlib.suppress(Exception):
                    store.close()
        self._end.close(wait_s=_LAST_WORDS_S)
        logging.shutdown()
        os._exit(self._status)

    def _obey(self, message: ToFetcher) -> None:
        """Slots may be given back before there is anybody to take them."""
        with self._lock:
            if self._fetcher is None:
                self._early.append(message)
            else:
                self._fetcher.obey(message)

    def _open(self, begin: Begin) -> None:
        """Open stores and begin to work; or tell the engine why not, and end."""
        sys.path[:] = begin.path
        configure_logging(TelemetrySettings.model_validate_json(begin.telemetry))
        try:
            fetcher = self._opened(begin)
        except DeepInferError as error:
            failure = OpenFailed(type(error).__name__, error.message, error.hint)
        except BaseException as error:  # noqa: BLE001 - components are foreign code, and may exit
            get_logger(__name__).error("store.not_opened", exc_info=error)
            failure = OpenFailed("EngineError", f"the store did not open: {describe(error)}", "")
        else:
            fetcher.start()
            with self._lock:
                for message in self._early:
                    fetcher.obey(message)
                self._fetcher = fetcher
            self._end.send(Opened(self._stores[0].capabilities.is_remote))
            return
        self._end.send(failure)
        self.leave()

    def _opened(self, begin: Begin) -> Fetcher:
        blocks, states = _open_stores(begin, self._stores)
        layout = segment_layout(
            begin.groups,
            arriving_bytes=begin.options.arriving_bytes,
            departing_bytes=begin.options.departing_bytes,
        )
        return Fetcher(
            Segment(self._memory, layout),
            blocks,
            states,
            {group.name: group for group in begin.groups},
            begin.held,
            begin.options,
            self._end.send,
            self._failed,
        )

    def _failed(self, error: BaseException) -> None:
        """A defect: another fetcher may do better."""
        get_logger(__name__).error("fetcher.failed", exc_info=error)
        os._exit(_FAILED)


def _open_stores(begin: Begin, stores: list[KvStore]) -> tuple[Endpoint, Endpoint]:
    """The store of blocks and that of states, which lie in memory only."""
    options = begin.options
    store: KvStore = load(pickle.loads(begin.resolved), "kv_store")
    lasting = [one for one in begin.groups if one.reuse != "last"]
    passing = [one for one in begin.groups if one.reuse == "last"]
    if not (passing and store.capabilities.is_persistent):
        store.open(begin.groups)
        stores.append(store)
        both = Endpoint(store, threads=options.read_threads, call_s=options.call_s)
        return both, both
    store.open(lasting)
    stores.append(store)
    memory = _memory_of_states(options, passing)
    stores.append(memory)
    return (
        Endpoint(store, threads=options.read_threads, call_s=options.call_s),
        Endpoint(memory, threads=1, call_s=options.call_s),
    )


def _memory_of_states(options: TrafficOptions, groups: list[BlockGroup]) -> MemoryStore:
    """A store of states alone: those used longest ago go first, however deep in their chains."""
    limits = MemoryStoreOptions(
        capacity_bytes=options.state_bytes,
        retention_s={group.retention: options.state_s for group in groups},
        young_s=0.0,
    )
    store = MemoryStore(limits_of(limits, age_step_s=_AGE_STEP_S, refresh_ratio=0.0))
    store.open(groups)
    return store


if __name__ == "__main__":
    # Classes that messages name belong to the module, not to the program.
    import_module("deepinfer_core.stores.fetcher.child").main()
