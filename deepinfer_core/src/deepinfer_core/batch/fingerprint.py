"""Do two runs give equal tokens for equal requests?

They do if their fingerprints are equal: checkpoint (see ``weights.fingerprint`` for what it cannot
see), components with their options and versions, and the settings that reach the tokens. Sizes of
steps and caches, which do not, are left out.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepinfer_core.config.settings import Settings
    from deepinfer_core.engine.loading import Loaded

__all__ = ["fingerprint_of"]


def fingerprint_of(loaded: Loaded, settings: Settings) -> str:
    """A short name for all that, ``fp_`` and 24 hexadecimal digits."""
    from deepinfer_core.weights.checkpoint import open_checkpoint

    resolved = loaded.resolution.require()
    parts = {
        "checkpoint": open_checkpoint(loaded.folder).fingerprint,
        "components": [f"{pick.slot}|{pick.identity}" for pick in resolved.picks],
        "distributions": resolved.distributions,
        "numerics": settings.model.numerics.model_dump(mode="json"),
        "longest_tokens": loaded.memory.max_model_tokens,
        "banned": settings.engine.decode_token_blacklist,
        "seed": settings.engine.seed,
    }
    text = json.dumps(parts, sort_keys=True)
    return "fp_" + hashlib.sha256(text.encode()).hexdigest()[:24]
