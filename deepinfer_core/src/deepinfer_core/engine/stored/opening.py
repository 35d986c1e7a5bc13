"""How does an engine come to its store, as the settings say?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from deepinfer_core.cache.stored import stored_groups
from deepinfer_core.config.settings import Settings
from deepinfer_core.engine.page_sizes import planned_layout
from deepinfer_core.engine.prefix_reuse import ReusePolicy
from deepinfer_core.engine.stored.exchange import Exchange
from deepinfer_core.engine.stored.limits import StoreLimits, match_timeout_s
from deepinfer_core.errors import ConfigError
from deepinfer_core.interfaces.kv_store import BlockGroup
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.plugin import Resolved
from deepinfer_core.stores.traffic import BlockTraffic

if TYPE_CHECKING:
    from deepinfer_core.engine.runner import ModelRunner

__all__ = ["check_store", "exchange_over", "open_traffic"]


def check_store(settings: Settings, resolved: Resolved) -> None:
    """Refuse settings under which a store would be of no use, before anything large is loaded.

    Raises:
        ConfigError: nothing is reused, or requests could name a class that the store does not have.
    """
    classes = settings.engine.kv_store.classes
    for pair in settings.server.key_retention:
        label, _, name = pair.partition(":")
        if name not in classes:
            raise ConfigError(
                f"server.key_retention gives {label} the class {name}, found {', '.join(classes)}",
                hint="add it to engine.kv_store.classes",
            )
    if not resolved.fills("kv_store"):
        return
    if not settings.engine.prefix_cache:
        raise ConfigError(
            "components.kv_store is set and engine.prefix_cache is false",
            hint="a store gives blocks to the prefix cache: turn it on, or leave the store out",
        )
    known = {"agent", "chat", *_classes_in(resolved.pick("kv_store").settings)}
    unknown = sorted(set(classes) - known)
    if unknown:
        raise ConfigError(
            f"engine.kv_store.classes has {', '.join(unknown)}, the store has"
            f" {', '.join(sorted(known))}",
            hint="add it to retention_s of the store's options",
        )


def open_traffic(
    settings: Settings, resolved: Resolved, config: ModelConfig
) -> BlockTraffic | None:
    """Start the fetcher, which opens the store; None: no store was chosen.

    Neither weights nor caches are needed, so whatever is wrong with a store is known before them.

    Args:
        settings: of the engine.
        resolved: its components.
        config: of the checkpoint.

    Raises:
        DeepInferError: the store cannot be opened, or shared memory has no room for a block.
    """
    if not resolved.fills("kv_store"):
        return None
    from deepinfer_core.stores.fetcher.engine_end import FetcherTraffic
    from deepinfer_core.stores.fetcher.options import TrafficOptions

    chosen = settings.engine.kv_store
    return FetcherTraffic(
        resolved,
        _groups(settings, resolved, config),
        TrafficOptions(
            arriving_bytes=chosen.fetch_bytes,
            departing_bytes=chosen.write_bytes,
            state_bytes=chosen.state_bytes,
            state_s=chosen.state_retention_s,
        ),
        telemetry=settings.telemetry,
    )


def exchange_over(
    traffic: BlockTraffic, settings: Settings, policy: ReusePolicy, runner: ModelRunner
) -> Exchange:
    """What an engine knows of its store.

    Args:
        traffic: the way to the store; closed with the exchange.
        settings: of the engine.
        policy: what is reused.
        runner: has the caches and the stream.
    """
    from deepinfer_core.engine.device_pages import DevicePages

    chosen = settings.engine.kv_store
    limits = StoreLimits(
        match_timeout_s=match_timeout_s(chosen.match_timeout_s, is_remote=traffic.is_remote),
        fetch_timeout_s=chosen.fetch_timeout_s,
        patience=chosen.fetch_patience,
        backlog_blocks=chosen.write_backlog_blocks,
        step_blocks=chosen.write_step_blocks,
        state_retention_s=chosen.state_retention_s,
    )
    return Exchange(
        traffic, DevicePages(runner.caches, runner.device, runner.stream), policy, limits
    )


def _groups(settings: Settings, resolved: Resolved, config: ModelConfig) -> tuple[BlockGroup, ...]:
    """Blocks, and states if they are wanted and have slots to be restored from."""
    drafter = resolved.pick("drafter").identity if settings.drafts else ""
    truncates = settings.engine.replay != "off"
    layout = planned_layout(config, settings)
    blocks, states = stored_groups(layout, truncates=truncates, drafter=drafter)
    has_states = settings.engine.kv_store.states and settings.engine.snapshot_slots != 0
    return (blocks, states) if has_states else (blocks,)


def _classes_in(options: object) -> Iterator[str]:
    """Classes of a store, and of those that it is made of."""
    for name, value in options.items() if isinstance(options, Mapping) else ():
        if name == "retention_s" and isinstance(value, Mapping):
            yield from value
        else:
            yield from _classes_in(value)
    for value in options if isinstance(options, list | tuple) else ():
        yield from _classes_in(value)
