"""Which checkpoint is used when the configuration names none?

A distribution ships a checkpoint through one entry point in the group ``deepinfer.checkpoints.v1``:
its value is a function without arguments that returns the folder. Nothing is imported until the
default is asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from importlib_metadata import EntryPoint

from deepinfer_core.errors import ConfigError, PluginFailed
from deepinfer_core.plugin.discovery import entry_points

if TYPE_CHECKING:
    from deepinfer_core.config.settings import Settings

__all__ = [
    "CHECKPOINT_GROUP",
    "checkpoint_folder",
    "checkpoint_name",
    "served_names",
    "shipped_checkpoints",
]

CHECKPOINT_GROUP = "deepinfer.checkpoints.v1"


def shipped_checkpoints() -> tuple[EntryPoint, ...]:
    """Installed checkpoints, sorted by name; each stands once."""
    found = {(item.name, item.value): item for item in entry_points(CHECKPOINT_GROUP)}
    return tuple(found[key] for key in sorted(found))


def checkpoint_folder(path: str | None) -> Path:
    """The folder to load.

    Args:
        path: ``model.path`` of the settings.

    Raises:
        ConfigError: an unknown home, or no path and not exactly one shipped checkpoint.
        PluginFailed: the shipped checkpoint's function failed.
    """
    if path is not None:
        try:
            return Path(path).expanduser()
        except RuntimeError as error:
            raise ConfigError(
                f"model.path is {path}, found no such user or home",
                hint="write the folder out",
            ) from error
    shipped = shipped_checkpoints()
    if not shipped:
        raise ConfigError(
            "model.path is not set, and no installed distribution ships a checkpoint",
            hint="set model.path, or install deepinfer-tiny",
        )
    if len(shipped) > 1:
        names = ", ".join(item.name for item in shipped)
        raise ConfigError(
            f"model.path is not set, and several checkpoints are installed: {names}",
            hint="set model.path",
        )
    [item] = shipped
    try:
        return Path(item.load()())
    except (Exception, SystemExit) as error:
        raise PluginFailed(
            f"shipped checkpoint {item.name!r} ({item.value}) gave no folder: "
            f"{type(error).__name__}: {error}",
            hint="reinstall its distribution, or set model.path",
        ) from error


def checkpoint_name(path: str | None, folder: Path) -> str:
    """What reports, metrics and clients call the model.

    Args:
        path: ``model.path`` of the settings.
        folder: ``checkpoint_folder`` of it.

    Returns:
        The name of the distribution that ships it, or else that of the folder.
    """
    if path is not None:
        return folder.resolve().name
    [item] = shipped_checkpoints()
    return item.dist.name if item.dist is not None else item.name


def served_names(settings: Settings) -> tuple[str, ...]:
    """Names of the model in requests and answers, its own first.

    Raises:
        ConfigError: there is no checkpoint; see ``checkpoint_folder``.
        PluginFailed: the same.
    """
    path = settings.model.path
    return settings.server.model_names or (checkpoint_name(path, checkpoint_folder(path)),)
