"""Which events did a piece of work log?"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["captured_events"]


@contextmanager
def captured_events() -> Iterator[list[dict[str, Any]]]:
    """Collect what loggers of ``telemetry.get_logger`` are given, of every level.

    Yields:
        The events so far, in order: ``event`` and the fields.
    """
    found: list[dict[str, Any]] = []

    class Collecting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if isinstance(record.msg, dict):
                found.append(record.msg)

    log, handler = logging.getLogger("deepinfer"), Collecting()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield found
    finally:
        log.setLevel(level)
        log.removeHandler(handler)
