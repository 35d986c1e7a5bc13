"""Can the configured store be opened, for the blocks of the configured checkpoint?

It is opened as an engine does it, by a fetcher, and closed again: so whatever an engine would be
refused for is found. A folder that is not there yet is made. One that an engine would empty is left
as it is: another version of the software wrote it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from deepinfer_core.errors import DeepInferError

if TYPE_CHECKING:
    from deepinfer_core.cli.check import Finding
    from deepinfer_core.config import LoadedSettings
    from deepinfer_core.plugin.resolution import Resolution
    from deepinfer_core.plugin.resolved import Resolved
    from deepinfer_core.stores.traffic import BlockTraffic

__all__ = ["check_store_opens"]

_TELLS_WITHIN_S = 5.0
_LOOKED_EVERY_S = 0.02


def check_store_opens(loaded: LoadedSettings, resolution: Resolution) -> Finding:
    """Open the store; nothing is found where none is configured, or components cannot be used."""
    from deepinfer_core.cli.check import Finding

    resolved = resolution.resolved
    if resolved is None:
        return Finding(name="store", table=[], data={})
    try:
        table, data, warning = _opened(loaded, resolved)
    except DeepInferError as error:
        return Finding(name="store", table=[], data={}, problems=(error,))
    return Finding(name="store", table=table, data=data, warnings=(warning,) if warning else ())


def _opened(
    loaded: LoadedSettings, resolved: Resolved
) -> tuple[list[tuple[str, ...]], dict[str, Any], str]:
    """A table, the same as data, and what is to be warned of."""
    from deepinfer_core.cli.configured_store import ConfiguredStore, format_problem
    from deepinfer_core.config import checkpoint_folder
    from deepinfer_core.config.checkpoints import shipped_checkpoints
    from deepinfer_core.engine.model_folder import read_config
    from deepinfer_core.engine.stored.opening import check_store, open_traffic

    settings = loaded.settings
    check_store(settings, resolved)
    if not resolved.fills("kv_store"):
        return [], {}, ""
    name = resolved.pick("kv_store").spec.name
    if settings.model.path is None and not shipped_checkpoints():
        return [("store", "not opened: no checkpoint is configured")], {"component": name}, ""
    try:
        config = read_config(checkpoint_folder(settings.model.path), settings)
    except DeepInferError:  # what is wrong with it is found where memory is added up
        return [("store", "not opened: the checkpoint cannot be read")], {"component": name}, ""
    if told := format_problem(ConfiguredStore(loaded=loaded, resolved=resolved)):
        row = (name, "not opened: the format of another version")
        warning = f"{told}: serve empties it when it opens, and the cache is cold then"
        return [("store", "state"), row], {"component": name, "problem": told}, warning
    traffic = open_traffic(settings, resolved, config)
    assert traffic is not None
    try:
        groups = {name: group.block_bytes for name, group in traffic.groups.items()}
        problem = _problem_told(traffic)
    finally:
        traffic.close()
    rows = [(name, "opens", group, f"{size:,}") for group, size in groups.items()]
    return (
        [("store", "state", "blocks of", "bytes of one"), *rows],
        {"component": name, "block_bytes": groups, "problem": problem},
        _warning(problem, has_parts=bool(resolved.pick("kv_store").parts)),
    )


def _warning(problem: str, *, has_parts: bool) -> str:
    if not problem:
        return ""
    how = "opens without some of its parts" if has_parts else "opens, and tells of a problem"
    return f"the store {how}: {problem}"


def _problem_told(traffic: BlockTraffic) -> str:
    """What a store tells of itself once it is open, which it does at once."""
    by_s = time.monotonic() + _TELLS_WITHIN_S
    while "blocks" not in (told := traffic.counts()).stores and time.monotonic() < by_s:
        traffic.wait(_LOOKED_EVERY_S)
    return told.stores["blocks"].problem if "blocks" in told.stores else told.problem
