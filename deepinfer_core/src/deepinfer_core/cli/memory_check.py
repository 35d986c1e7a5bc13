"""Do the weights, blocks and state slots of the configured checkpoint fit into the device?

Read from the checkpoint's config alone; no tensor is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deepinfer_core.errors import DeepInferError

if TYPE_CHECKING:
    from deepinfer_core.cli.check import Finding
    from deepinfer_core.config import LoadedSettings
    from deepinfer_core.plugin import ModelNeeds
    from deepinfer_core.plugin.resolution import Resolution

__all__ = ["check_memory", "configured_needs", "memory_table"]


def configured_needs(loaded: LoadedSettings) -> ModelNeeds | None:
    """What probes may know about the configured checkpoint; None if it cannot be read.

    Why it cannot be read is what ``check_memory`` finds.
    """
    from deepinfer_core.config import checkpoint_folder
    from deepinfer_core.engine.model_folder import model_needs, read_config

    try:
        folder = checkpoint_folder(loaded.settings.model.path)
        return model_needs(read_config(folder, loaded.settings), loaded.settings)
    except DeepInferError:
        return None


def check_memory(loaded: LoadedSettings, resolution: Resolution) -> Finding:
    """The sum of memory, and whether one request of the longest length fits."""
    from deepinfer_core.cli.check import Finding

    try:
        table, data = _figures(loaded, resolution)
    except DeepInferError as error:
        return Finding(name="memory", table=[], data={}, problems=(error,))
    return Finding(name="memory", table=table, data=data)


def _figures(
    loaded: LoadedSettings, resolution: Resolution
) -> tuple[list[tuple[str, ...]], dict[str, Any]]:
    from deepinfer_core.config import checkpoint_folder
    from deepinfer_core.config.checkpoints import shipped_checkpoints
    from deepinfer_core.engine.drafts.settings import reads_tokens
    from deepinfer_core.engine.memory_plan import plan_memory
    from deepinfer_core.engine.model_folder import read_config

    settings = loaded.settings
    if settings.model.path is None and not shipped_checkpoints():
        # Components can be checked without a checkpoint; there is nothing to add up.
        return [("memory", "no checkpoint is configured")], {}
    folder = checkpoint_folder(settings.model.path)
    resolved, device_bytes = resolution.resolved, resolution.report.device.memory_bytes
    plan = plan_memory(
        read_config(folder, settings),
        settings,
        device_bytes,
        reads_tokens=resolved is not None and reads_tokens(settings, resolved),
    ).to_json()
    rows = memory_table(plan, device_bytes)
    return rows, {"checkpoint": str(folder), "device_bytes": device_bytes, **plan}


def memory_table(plan: Mapping[str, int], device_bytes: int) -> list[tuple[str, ...]]:
    """Rows for a person, with a header.

    Args:
        plan: of ``MemoryPlan.to_json``.
        device_bytes: what the device has; 0 if that is unknown.
    """
    laws = ("laws of drafts", "", f"{plan['laws_bytes']:,}")
    tokens = ("tokens for drafts", "", f"{plan['tokens_bytes']:,}")
    recorded = ("recorded steps", "at most", f"{plan['recordings_bytes']:,}")
    return [
        ("memory", "pages", "bytes"),
        ("weights", "", f"{plan['weights_bytes']:,}"),
        *([recorded] if plan["recordings_bytes"] else []),
        *([laws] if plan["laws_bytes"] else []),
        *([tokens] if plan["tokens_bytes"] else []),
        _pages("blocks", plan["num_blocks"], plan["block_bytes"]),
        _pages("state slots", plan["num_slots"], plan["state_bytes"]),
        ("sum", "", f"{plan['total_bytes']:,}"),
        ("device", "", f"{device_bytes:,}" if device_bytes else "unknown"),
    ]


def _pages(name: str, count: int, size_bytes: int) -> tuple[str, ...]:
    return name, f"{count:,} x {size_bytes:,}", f"{count * size_bytes:,}"
