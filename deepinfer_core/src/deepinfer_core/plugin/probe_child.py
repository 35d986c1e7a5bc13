"""Program: what do these probes say? Runs where an abort or a hang may happen."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

from deepinfer_core.plugin.children import serve_tasks
from deepinfer_core.plugin.context import DeviceFacts, ModelNeeds, ProbeContext
from deepinfer_core.plugin.probing import call_probe
from deepinfer_core.plugin.resolved import describe

__all__: list[str] = []


def answer(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """Call one probe; a task holds its reference and the parts of its context."""
    context = ProbeContext(
        device=DeviceFacts.from_json(task["device"]),
        needs=ModelNeeds.from_json(task["needs"]),
        versions=task["versions"],
        cache_dir=task["cache_dir"],
    )
    try:
        verdict = call_probe(task["probe"], context)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code, kept as a fact
        details = "".join(traceback.format_exception(error))
        return {"problem": describe(error), "details": details}
    return {
        "usable": verdict.usable,
        "score": verdict.score,
        "reason": verdict.reason,
        "fix": verdict.fix,
        "mendable": verdict.mendable,
    }


if __name__ == "__main__":
    serve_tasks(answer)
