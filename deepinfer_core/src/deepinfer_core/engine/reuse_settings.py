"""What do settings, components and checkpoint say about the reuse of prefixes?"""

from __future__ import annotations

from dataclasses import asdict

from deepinfer_core.config.settings import Settings
from deepinfer_core.engine.memory_plan import BLOCK_TOKENS
from deepinfer_core.engine.prefix_reuse import CacheIdentity, ReusePolicy
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.plugin import Resolved

__all__ = ["reuse_policy"]


def reuse_policy(
    config: ModelConfig, settings: Settings, resolved: Resolved, fingerprint: str, layout: bytes
) -> ReusePolicy:
    """The policy of an engine.

    Args:
        config: of the checkpoint.
        settings: of the engine.
        resolved: its components.
        fingerprint: of the checkpoint.
        layout: of the caches.
    """
    picks = (f"{pick.kind}/{pick.slot}={pick.identity}" for pick in resolved.picks)
    versions = (f"{name}=={version}" for name, version in resolved.distributions)
    numerics = asdict(settings.model.numerics.numerics())
    return ReusePolicy(
        block_tokens=BLOCK_TOKENS,
        window_tokens=config.text_config.sliding_window,
        # One more than layers: the drafter's keys are made of what the last layers give.
        layers=config.text_config.num_hidden_layers + 1,
        recovery=settings.engine.recovery,
        is_enabled=settings.engine.prefix_cache,
        truncates=settings.engine.replay != "off",
        identity=CacheIdentity(
            model=bytes.fromhex(fingerprint),
            layout=layout,
            numerics="|".join((*picks, *versions, str(numerics))),
        ),
    )
