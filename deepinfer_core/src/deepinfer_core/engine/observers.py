"""What do observing plugins and the log learn about the engine's life?

Never a prompt or an answer, and never while a token is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from deepinfer_core.engine.core import Update
from deepinfer_core.plugin.hooks import engine_started, request_finished, resolved
from deepinfer_core.plugin.resolution import Resolution
from deepinfer_core.telemetry.logs import get_logger
from deepinfer_core.telemetry.reports import log_components, log_hook_failures

__all__ = ["tell_finished", "tell_resolved", "tell_started"]


def tell_resolved(resolution: Resolution) -> None:
    """The components were chosen."""
    log_components(resolution.report)
    log_hook_failures(resolved(resolution.plugins.manager, resolution.report))


def tell_started(resolution: Resolution, info: Mapping[str, Any]) -> None:
    """The engine is ready: device, sizes and limits."""
    get_logger(__name__).info("engine.started", **info)
    log_hook_failures(engine_started(resolution.plugins.manager, info))


def tell_finished(resolution: Resolution, update: Update, name: str = "") -> None:
    """A request ended: counts, times and reason.

    Args:
        resolution: has the plugins that observe.
        update: the last one of the request.
        name: that whoever asked gave it; empty: it has its number.
    """
    completion = update.delta.completion
    assert completion is not None
    summary: dict[str, Any] = {
        "request_id": name or str(update.sequence_id),
        "finish_reason": completion.finish_reason,
        "error": completion.error.code if completion.error else None,
        **asdict(completion.usage),
        **{f"{name}_s": value for name, value in asdict(completion.timings_s).items()},
    }
    if (timeline := completion.timeline) is not None:
        summary |= {
            "queue_s": timeline.queue_s,
            "prefill_s": timeline.prefill_s,
            "decode_s": timeline.decode_s,
            "preemptions": timeline.preemptions,
        }
    log = get_logger(__name__)
    log.info("request.finished", **summary)
    if completion.error is not None:
        log.debug("request.failed", exc_info=completion.error)
    log_hook_failures(request_finished(resolution.plugins.manager, summary))
