"""What does the server say about itself: does it live, does it take requests, what does it do?

Three questions with three answers. ``/health``: should this process be started anew? ``/ready``:
should requests be sent here now? ``/progress``: what is it doing, and how far is its loading?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deepinfer_core.errors import EngineError
from deepinfer_core.interfaces.protocol import Endpoint, Handle, HttpAnswer, HttpCall, JsonAnswer
from deepinfer_core.server.dialect import OPENAI, json_bytes
from deepinfer_core.server.fair_engine import FairEngine
from deepinfer_core.server.figure_text import text_of
from deepinfer_core.server.http_metrics import HttpMetrics

__all__ = ["METRICS_PATH", "OWNER", "PROBE_PATHS", "service_endpoints"]

OWNER = "server"
"""Stands for the shell where components are named."""

PROBE_PATHS = frozenset({"/health", "/ready"})
"""They need no key: whoever watches over processes has none."""

METRICS_PATH = "/metrics"
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def service_endpoints(
    engine: FairEngine,
    metrics: HttpMetrics,
    progress: Callable[[], Mapping[str, Any]],
    document: Callable[[], bytes],
) -> Sequence[Endpoint]:
    """The endpoints of the shell itself.

    Args:
        engine: that is asked.
        metrics: of the server.
        progress: tells how far the loading of the engine is, as JSON data.
        document: gives the description of all endpoints.
    """

    async def health(call: HttpCall) -> HttpAnswer:
        alive = engine.state != "dead"
        return _json({"status": "ok" if alive else "dead"}, 200 if alive else 503)

    async def ready(call: HttpCall) -> HttpAnswer:
        return _json({"status": engine.state}, 200 if engine.state == "ready" else 503)

    async def what_it_does(call: HttpCall) -> HttpAnswer:
        counts = {"in_work": engine.in_work, "waiting": engine.waiting}
        return _json({"status": engine.state, **counts, "loading": progress()}, 200)

    async def figures(call: HttpCall) -> HttpAnswer:
        try:
            text = await engine.metrics_text()
        except EngineError:
            text = ""  # it died just now; what the server counts is still worth reading
        content = (await text_of(metrics.read()) + text).encode()
        return JsonAnswer(content=content, headers={"content-type": _METRICS_TYPE})

    async def description(call: HttpCall) -> HttpAnswer:
        return JsonAnswer(content=document())

    return [
        _get("/health", health, "Whether the process and its engine live."),
        _get("/ready", ready, "Whether requests are taken now."),
        _get("/progress", what_it_does, "What is in work, and how far the loading is."),
        _get(METRICS_PATH, figures, "Figures of server and engine for Prometheus."),
        _get("/openapi.json", description, "This description."),
    ]


def _get(path: str, handle: Handle, summary: str) -> Endpoint:
    return Endpoint(method="GET", path=path, handle=handle, dialect=OPENAI, summary=summary)


def _json(value: object, status: int) -> HttpAnswer:
    return JsonAnswer(
        content=json_bytes(value), status=status, headers={"cache-control": "no-store"}
    )
