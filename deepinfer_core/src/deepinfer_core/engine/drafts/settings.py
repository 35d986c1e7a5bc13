"""What do the settings say about drafts, and what is a drafter told about its engine?"""

from __future__ import annotations

import hashlib
import platform
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from deepinfer_core.config import LoadedSettings
from deepinfer_core.config.kernel_cache import kernel_cache_folder
from deepinfer_core.config.settings import Settings
from deepinfer_core.engine.memory_plan import MemoryPlan
from deepinfer_core.errors import ConfigError
from deepinfer_core.interfaces.device import Device
from deepinfer_core.interfaces.drafter import Drafter, DraftHost
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.plugin import Resolved, load

if TYPE_CHECKING:
    from deepinfer_core.config.origins import Origin

__all__ = ["check_speculation", "draft_host", "reads_tokens"]


def check_speculation(loaded: LoadedSettings) -> None:
    """Refuse settings that ask for speculation where nobody drafts.

    Raises:
        ConfigError: names the key, and what to install.
    """
    settings = loaded.settings
    if settings.components.drafter.use != "none":
        return
    asked = {
        "max_drafts": settings.speculation.max_drafts > 0,
        "rule": settings.speculation.rule != "match",
        "budget": settings.speculation.budget != "fixed",
    }
    for name, is_asked in asked.items():
        key = f"speculation.{name}"
        origin: Origin | None = loaded.origins.get(key)
        if is_asked and origin is not None and origin.kind != "default":
            value = getattr(settings.speculation, name)
            raise ConfigError(
                f"{key} = {value!r} (from {origin}), but nobody drafts: components.drafter.use is "
                "none",
                hint="name a drafter: dspark.block (install deepinfer-dspark), or core.ngram",
            )


def reads_tokens(settings: Settings, resolved: Resolved) -> bool:
    """Whether the drafter, if there is one, wants the tokens of sequences kept for it."""
    if not settings.drafts:
        return False
    drafter: Drafter = load(resolved, "drafter")
    return drafter.capabilities.reads_tokens


def draft_host(
    config: ModelConfig,
    settings: Settings,
    resolved: Resolved,
    memory: MemoryPlan,
    device: Device,
    checkpoint: str,
) -> DraftHost:
    """What a drafter is told, all but the draft network.

    Args:
        config: of the checkpoint.
        settings: of the engine.
        resolved: its components.
        memory: what it allocated.
        device: where it runs.
        checkpoint: fingerprint.
    """
    kernels = kernel_cache_folder(settings.kernels.cache_dir)
    return DraftHost(
        drafts=settings.drafts,
        vocabulary=config.text_config.vocab_size,
        max_sequences=settings.engine.max_num_seqs,
        max_tokens=memory.max_model_tokens,
        rule=settings.speculation.rule,
        torch_device=device.torch_device,
        temperatures=config.text_config.confidence_temperatures,
        checkpoint=checkpoint,
        identity=_identity(settings, resolved, memory, device, checkpoint),
        cache_dir=str(Path(kernels).parent / "measured") if kernels else "",
    )


def _identity(
    settings: Settings, resolved: Resolved, memory: MemoryPlan, device: Device, checkpoint: str
) -> str:
    """A digest of everything that changes how long a step takes."""
    import torch

    facts = (
        checkpoint,
        sorted(pick.identity for pick in resolved.picks),
        sorted(resolved.distributions),
        sorted(asdict(settings.model.numerics.numerics()).items()),
        sorted(settings.engine.model_dump().items(), key=str),
        sorted(memory.to_json().items()),
        settings.threads,
        sorted((name, str(value)) for name, value in device.facts().items()),
        (platform.node(), torch.__version__),
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()
