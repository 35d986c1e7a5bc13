"""Where do log events go, and in which form?

An event is a dotted past-tense name plus fields: ``log.info("weights.loaded", bytes=n)``. Events
travel through the standard library's logging, so that an application which embeds the engine
decides where they go, and lines of an HTTP server take the same way as ours. Only the command line
calls ``configure_logging``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import IO, TYPE_CHECKING, Any, Literal

import structlog
from structlog.typing import Processor

if TYPE_CHECKING:
    from deepinfer_core.config.settings import TelemetrySettings

__all__ = ["configure_logging", "get_logger"]

_ROOT = "deepinfer"
_OFF = logging.CRITICAL + 1

_REQUEST_TEXT = frozenset({"completion", "content", "messages", "prompt", "prompts", "text"})
"""Fields that could hold what a user wrote; a log never has it, whoever passes it by mistake."""

_Fields = MutableMapping[str, Any]


def get_logger(name: str) -> Any:
    """A logger for one module.

    Args:
        name: the module's name.

    Returns:
        A structlog logger; bound context such as ``request_id`` joins each event.
    """
    return structlog.wrap_logger(
        logging.getLogger(f"{_ROOT}.{name.removeprefix('deepinfer_core.')}"),
        wrapper_class=structlog.stdlib.BoundLogger,
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            *_shared(),
            structlog.processors.format_exc_info,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
    )


def configure_logging(settings: TelemetrySettings, stream: IO[str] | None = None) -> None:
    """Send all events to one stream. A second call replaces the first.

    Args:
        settings: format and level.
        stream: None is standard error, looked up for each event.
    """
    shape = _shape(settings.format, sys.stderr if stream is None else stream)
    handler = _StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*_shared(), structlog.processors.format_exc_info],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _renderer(shape, stream),
            ],
        )
    )
    root = logging.getLogger()
    for old in [item for item in root.handlers if isinstance(item, _StreamHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    level = (
        _OFF if settings.level == "off" else logging.getLevelNamesMapping()[settings.level.upper()]
    )
    logging.getLogger(_ROOT).setLevel(level)


class _StreamHandler(logging.StreamHandler[Any]):
    """Ours, so that a second set-up can find it; follows the present standard error by default."""

    def __init__(self, stream: IO[str] | None) -> None:
        super().__init__(stream)
        self._follows_stderr = stream is None

    def emit(self, record: logging.LogRecord) -> None:
        if self._follows_stderr:
            self.stream = sys.stderr
        super().emit(record)


def _shared() -> list[Processor]:
    return [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _without_request_text,
    ]


def _without_request_text(logger: object, method: str, fields: _Fields) -> _Fields:
    for name in _REQUEST_TEXT & fields.keys():
        fields[name] = "[not logged]"
    return fields


def _shape(
    wanted: Literal["auto", "console", "json"], stream: IO[str] | None
) -> Literal["console", "json"]:
    if wanted == "auto":
        return "console" if stream is not None and stream.isatty() else "json"
    return wanted


def _renderer(shape: Literal["console", "json"], stream: IO[str] | None) -> Processor:
    if shape == "json":
        return structlog.processors.JSONRenderer(default=str)
    target = sys.stderr if stream is None else stream
    return structlog.dev.ConsoleRenderer(colors=target is not None and target.isatty())
