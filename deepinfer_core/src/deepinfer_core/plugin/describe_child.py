"""Program: can these plugins be loaded without harm? Runs where an abort or a hang may happen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepinfer_core.plugin.children import serve_tasks
from deepinfer_core.plugin.describing import describe_plugin
from deepinfer_core.plugin.discovery import Installed
from deepinfer_core.plugin.hooks import new_manager

__all__: list[str] = []


def main() -> None:
    """Load plugins one by one and report each failure."""
    manager = new_manager()

    def work(task: Mapping[str, Any]) -> Mapping[str, Any]:
        described = describe_plugin(manager, Installed(**task))
        return {
            "problem": described.problem,
            "details": described.details,
            "heavy": described.heavy,
            "load_s": described.load_s,
        }

    serve_tasks(work)


if __name__ == "__main__":
    main()
