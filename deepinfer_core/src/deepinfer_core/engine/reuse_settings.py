"""What do settings, components and checkpoint say about the reuse of prefixes?"""

from __future__ import annotations

from dataclasses import asdict

import importlib_metadata

from deepinfer_core.config.settings import Settings
from deepinfer_core.engine.page_sizes import BLOCK_TOKENS
from deepinfer_core.engine.prefix_reuse import CacheIdentity, ReusePolicy
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.plugin import Resolved

__all__ = ["reuse_policy"]

_COMPUTING = frozenset({"device", "attention", "gemm", "transform", "all_to_all"})
"""Kinds of components that cached rows come from; a drafter's rows are part of whole states."""


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
            numerics=_numerics(settings, resolved),
        ),
    )


def _numerics(settings: Settings, resolved: Resolved) -> str:
    """Whatever the bits of cached rows depend on beside model, layout and tokens.

    Blocks and states outlive the engine and may reach other machines, so what computes is named
    with its version, and with the device that it computes on. What only chooses tokens, keeps
    blocks or speaks to users changes no row.
    """
    picks = [pick for pick in resolved.picks if pick.kind in _COMPUTING]
    homes = {pick.distribution for pick in picks}
    facts = resolved.context.facts
    parts = [
        *(f"{pick.kind}/{pick.slot}={pick.identity}" for pick in picks),
        *(f"{name}=={version}" for name, version in resolved.distributions if name in homes),
        f"torch=={importlib_metadata.version('torch')}",
        f"{facts.device}/{facts.model}/{facts.capability}/{facts.instruction_sets}",
        f"threads={settings.threads}",
        str(asdict(settings.model.numerics.numerics())),
    ]
    return "|".join(parts)
