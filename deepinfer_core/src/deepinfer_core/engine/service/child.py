"""Program: what does the engine's process do from its start to its end?

Its one argument is the descriptor of its end of the channel. It loads what the first message says,
serves until it is told to stop, and ends at once, at any time, when the channel ends: nobody is
left who could use what it holds.

Signals are the front's: it ends this process when it has drained. One that is sent to all processes
of a service does nothing here.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from importlib import import_module
from threading import Thread
from typing import NoReturn

from deepinfer_core.channel.frames import ChannelBroken
from deepinfer_core.channel.thread_end import ThreadEnd
from deepinfer_core.config import LoadedSettings
from deepinfer_core.engine.service.faults import fault_of
from deepinfer_core.engine.service.messages import (
    FRONT_LANGUAGE,
    FromEngine,
    LoadFailed,
    Loading,
    Ready,
    Start,
    ToEngine,
)
from deepinfer_core.engine.service.opening import OpenEngine, open_engine
from deepinfer_core.engine.service.serving import EngineService
from deepinfer_core.errors import DeepInferError
from deepinfer_core.telemetry.logs import configure_logging, get_logger
from deepinfer_core.telemetry.progress import (
    PhaseAdvanced,
    PhaseStarted,
    ProgressEvent,
    ProgressStream,
)
from deepinfer_core.telemetry.reports import log_progress

__all__ = ["main", "run"]

_FAILED = 1
_LAST_WORDS_S = 5.0
"""How long the front has to take what was said last."""

_End = ThreadEnd[FromEngine, ToEngine]


def run(descriptor: int, open_engine: OpenEngine) -> NoReturn:
    """Be the engine's process.

    Args:
        descriptor: of a connected socket.
        open_engine: loads.
    """
    _leave_signals_to_the_front()
    if sys.stderr is not None:
        os.dup2(2, 1)  # standard output is the front's; what foreign code prints is no answer
        faulthandler.enable()
    os.set_inheritable(descriptor, False)
    end: _End = ThreadEnd(socket.socket(fileno=descriptor), FRONT_LANGUAGE.reversed())
    status = _FAILED
    try:
        messages = end.messages()
        start = next(messages, None)
        if isinstance(start, Start):
            status = _serve(start, end, messages, open_engine)
    except ChannelBroken as error:
        get_logger(__name__).error("channel.broken", reason=str(error))
    _leave(end, status)


def _serve(start: Start, end: _End, messages: Iterator[ToEngine], open_engine: OpenEngine) -> int:
    """Load and serve; the exit status."""
    sys.path[:] = start.path
    loaded = LoadedSettings.from_json(start.settings)
    configure_logging(loaded.settings.telemetry)
    listener = _Listener(messages)
    try:
        opened = open_engine(loaded, ProgressStream(log_progress, _Reporter(end)))
    except BaseException as error:  # noqa: BLE001 - components are foreign code, and may exit
        if not isinstance(error, DeepInferError):  # those the front shows, and they say enough
            get_logger(__name__).error("engine.load_failed", exc_info=error)
        end.send(LoadFailed(fault_of(error)))
        listener.is_needed = False
        return _FAILED
    # What was loaded stays; a collection that looked at all of it would hold up a step for long.
    gc.collect()
    gc.freeze()
    service = EngineService(opened, end.send)
    listener.service = service
    end.send(Ready(opened.facts))
    service.join()
    listener.is_needed = False
    return 0 if service.failure is None else _FAILED


class _Listener:
    """A thread that listens from the start, so that the channel's end also ends the loading.

    Attributes:
        service: obeys; None while it loads.
        is_needed: the process ends when nobody is left to listen to.
    """

    def __init__(self, messages: Iterator[ToEngine]) -> None:
        self.service: EngineService | None = None
        self.is_needed = True
        self._messages = messages
        Thread(target=self._listen, name="deepinfer-listener", daemon=True).start()

    def _listen(self) -> None:
        try:
            for message in self._messages:
                if self.service is None:
                    break  # nothing but the end can be wished before anything was offered
                self.service.obey(message)
        except ChannelBroken as error:
            get_logger(__name__).error("channel.broken", reason=str(error))
        except BaseException as error:  # noqa: BLE001 - a deaf engine would run for ever
            get_logger(__name__).error("channel.failed", exc_info=error)
        if self.is_needed:
            os._exit(_FAILED)


class _Reporter:
    """Sends events of loading."""

    def __init__(self, end: _End) -> None:
        self._end = end

    def __call__(self, event: ProgressEvent) -> None:
        if isinstance(event, PhaseStarted):
            self._end.send(Loading(started=event))
        elif isinstance(event, PhaseAdvanced):
            self._end.send(Loading(advanced=event))
        else:
            self._end.send(Loading(finished=event))


def _leave_signals_to_the_front() -> None:
    """Handlers and not ``SIG_IGN``, which processes that are started from here would inherit."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)


def _leave(end: _End, status: int) -> NoReturn:
    """Threads or exit handlers of foreign code must not keep a process alive that nobody wants."""
    end.close(wait_s=_LAST_WORDS_S)
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status)


def main() -> NoReturn:
    """Serve what the settings say."""
    run(int(sys.argv[1]), open_engine)


if __name__ == "__main__":
    # Classes that messages name belong to the module, not to the program.
    import_module("deepinfer_core.engine.service.child").main()
