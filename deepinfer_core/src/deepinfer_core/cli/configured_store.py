"""Which store do the settings name, and how is it opened beside a service that uses it?

A store whose options have ``writes`` is told whether it is to be changed; parts of a store that is
made of others likewise. Where one process writes at a time, changing is for when no service runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from deepinfer_core.cli.parser import UsageError
from deepinfer_core.errors import DeepInferError, OtherFormat

if TYPE_CHECKING:
    from deepinfer_core.config import LoadedSettings
    from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore
    from deepinfer_core.plugin.resolved import Pick, Resolved

__all__ = [
    "ConfiguredStore",
    "configured_store",
    "format_problem",
    "namespace_of_salt",
    "open_store",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredStore:
    """A store that is not built yet.

    Attributes:
        loaded: the settings.
        resolved: all components, a store among them.
    """

    loaded: LoadedSettings
    resolved: Resolved

    @property
    def name(self) -> str:
        """Of the component."""
        return self.resolved.pick("kv_store").spec.name


def configured_store(loaded: LoadedSettings) -> ConfiguredStore:
    """The store that settings name.

    Raises:
        UsageError: they name none.
        DeepInferError: a component cannot be used.
    """
    from deepinfer_core.cli.memory_check import configured_needs
    from deepinfer_core.config import resolve_components

    resolved = resolve_components(loaded, configured_needs(loaded)).require()
    if not resolved.fills("kv_store"):
        raise UsageError(
            "the settings name no store",
            hint="-c FILE of the service, or --set components.kv_store.use=NAME",
        )
    return ConfiguredStore(loaded=loaded, resolved=resolved)


@contextmanager
def open_store(configured: ConfiguredStore, *, writes: bool, otherwise: str) -> Iterator[KvStore]:
    """The store, open for the groups of the configured checkpoint.

    Args:
        configured: as of the service.
        writes: whether it is to be changed.
        otherwise: what to do where others cannot see it.

    Raises:
        UsageError: others cannot see it.
        ConfigError: it cannot be opened; to be changed also, because another process writes to it.
    """
    resolved = configured.resolved
    if not writes:
        resolved = replace(resolved, picks=tuple(_reading(pick) for pick in resolved.picks))
    lasting = list(_lasting(resolved, resolved.pick("kv_store")))
    if not lasting:
        raise UsageError(
            f"{configured.name} keeps blocks in the memory of the process that uses it",
            hint=otherwise,
        )
    if len(lasting) > 1:
        raise UsageError(
            f"{configured.name} has several stores that outlive a process, found"
            f" {' and '.join(pick.spec.name for pick in lasting)}",
            hint="name one of them as components.kv_store in settings of its own",
        )
    store = _built(resolved, lasting[0])
    store.open(_groups(configured.loaded))
    try:
        yield store
    finally:
        store.close()


def format_problem(configured: ConfiguredStore) -> str:
    """Which part of a store was written by another version, so that opening it to write empties it.

    Parts are opened with ``writes = false`` and closed again.

    Returns:
        What the part says; empty: there is none, as far as can be seen without writing.
    """
    groups = _groups(configured.loaded)
    for pick in _leaves(configured.resolved.pick("kv_store")):
        if not _can_read_only(pick):
            continue
        store = _built(configured.resolved, _reading(pick))
        try:
            store.open([group for group in groups if group.reuse == "leading"])
        except OtherFormat as error:
            return error.message
        except DeepInferError:
            continue  # whoever opens it to write is told
        store.close()
    return ""


def namespace_of_salt(configured: ConfiguredStore, salt: str) -> bytes:
    """Root of the keys of requests with a salt, for the configured checkpoint and components.

    Args:
        configured: as of the service.
        salt: ``cache_salt`` of the requests.

    Raises:
        DeepInferError: the checkpoint or a component cannot be used.
    """
    from deepinfer_core.cache.fingerprint import layout_fingerprint
    from deepinfer_core.config import checkpoint_folder
    from deepinfer_core.engine.model_folder import read_config
    from deepinfer_core.engine.page_sizes import planned_layout
    from deepinfer_core.engine.reuse_settings import reuse_policy
    from deepinfer_core.weights.checkpoint import open_checkpoint

    settings = configured.loaded.settings
    folder = checkpoint_folder(settings.model.path)
    config = read_config(folder, settings)
    layout = layout_fingerprint(planned_layout(config, settings))
    fingerprint = open_checkpoint(folder).fingerprint
    return reuse_policy(config, settings, configured.resolved, fingerprint, layout).root(salt)


def _groups(loaded: LoadedSettings) -> Sequence[BlockGroup]:
    """Of the configured checkpoint; no weight is read."""
    from deepinfer_core.cache.stored import stored_groups
    from deepinfer_core.config import checkpoint_folder
    from deepinfer_core.engine.model_folder import read_config
    from deepinfer_core.engine.page_sizes import planned_layout

    settings = loaded.settings
    config = read_config(checkpoint_folder(settings.model.path), settings)
    layout = planned_layout(config, settings)
    return stored_groups(layout, truncates=settings.engine.replay != "off")


def _lasting(resolved: Resolved, pick: Pick) -> Iterator[Pick]:
    """A store, or those of its parts, that outlive the processes that use them."""
    if _built(resolved, pick).capabilities.is_persistent:
        yield pick
        return
    for part in pick.parts:
        yield from _lasting(resolved, part)


def _built(resolved: Resolved, pick: Pick) -> KvStore:
    """One of the stores that are chosen, as if it were the only one."""
    from deepinfer_core.plugin import load

    whole = resolved.pick("kv_store")
    alone = tuple(replace(pick, slot=whole.slot) if one is whole else one for one in resolved.picks)
    store: KvStore = load(replace(resolved, picks=alone), "kv_store")
    return store


def _leaves(pick: Pick) -> Iterator[Pick]:
    """A store, or of one that is made of others those at the end."""
    if not pick.parts:
        yield pick
    for part in pick.parts:
        yield from _leaves(part)


def _can_read_only(pick: Pick) -> bool:
    schema = resolve_name(pick.spec.options) if pick.spec.options else None
    return "writes" in getattr(schema, "model_fields", {})


def _reading(pick: Pick) -> Pick:
    """The same store, told not to write; other components as they are."""
    if pick.kind != "kv_store":
        return pick
    settings = dict(pick.settings)
    if _can_read_only(pick):
        settings["writes"] = False
    return replace(pick, parts=tuple(map(_reading, pick.parts)), settings=settings)
