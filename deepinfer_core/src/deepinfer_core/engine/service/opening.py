"""How does the engine's process load, and what does it say about what it loaded?"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from deepinfer_core import __version__
from deepinfer_core.config import LoadedSettings
from deepinfer_core.config.settings import Settings
from deepinfer_core.engine.core import Engine, Update
from deepinfer_core.interfaces.async_engine import EngineFacts
from deepinfer_core.telemetry.progress import ProgressStream

__all__ = ["OpenEngine", "OpenedEngine", "open_engine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedEngine:
    """An engine for a service.

    Attributes:
        engine: ready for requests.
        facts: what the front is told.
        finished: told about each sequence that ended, and the name of its request.
    """

    engine: Engine
    facts: EngineFacts
    finished: Callable[[Update, str], None]


OpenEngine = Callable[[LoadedSettings, ProgressStream], OpenedEngine]


def open_engine(loaded: LoadedSettings, progress: ProgressStream) -> OpenedEngine:
    """Load what the settings say; raises what ``LLM`` raises."""
    from deepinfer_core.config.checkpoints import checkpoint_name
    from deepinfer_core.engine.loading import load_engine
    from deepinfer_core.engine.observers import tell_finished
    from deepinfer_core.engine.page_sizes import BLOCK_TOKENS

    found = load_engine(loaded, progress)
    engine, settings = found.engine, loaded.settings
    components = found.resolution.report.picked()
    name = checkpoint_name(settings.model.path, found.folder)
    report: dict[str, Any] = {
        "version": __version__,
        "python": platform.python_version(),
        "device": settings.device,
        "checkpoint": name,
        "load_s": engine.load_s,
        "memory": found.memory.to_json(),
        "cache_tokens": (found.memory.num_blocks - 1) * BLOCK_TOKENS,
        "device_bytes": found.resolution.report.device.memory_bytes,
        "max_num_seqs": settings.engine.max_num_seqs,
        "max_queued": settings.engine.max_queued,
        "max_num_batched_tokens": settings.engine.max_num_batched_tokens,
        "speculation": settings.speculation.model_dump(mode="json"),
        "grammar": settings.grammar.model_dump(mode="json"),
        "kv_store": _store_report(components, engine, settings),
    }
    facts = EngineFacts(
        model=name,
        tokenizer_json=None if engine.tokenizer is None else engine.tokenizer.source,
        max_model_len=engine.rules.max_model_tokens,
        vocabulary=engine.rules.vocabulary,
        grammar_kinds=engine.grammars.kinds,
        components=components,
        report=report,
    )
    finished = partial(tell_finished, found.resolution)
    return OpenedEngine(engine=engine, facts=facts, finished=finished)


def _store_report(
    components: Mapping[str, str], engine: Engine, settings: Settings
) -> dict[str, Any] | None:
    """The store and how it is used; None: there is none."""
    exchange = engine.batch.pages.exchange
    if exchange is None:
        return None
    groups = {name: group.block_bytes for name, group in exchange.groups.items()}
    used = settings.engine.kv_store.model_dump(mode="json")
    return {"component": components["kv_store"], "block_bytes": groups, **used}
