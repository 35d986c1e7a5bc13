"""For which blocks is a store opened that is tested?

Light: whoever is to be killed in a test has little to load.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace

from deepinfer_core.interfaces.kv_store import BlockGroup

__all__ = ["BLOCKS", "FOREVER", "STATES"]

FOREVER = math.inf
"""A deadline that does not pass."""

BLOCKS = BlockGroup(
    name="blocks",
    number_format="bytes",
    layout=hashlib.sha256(b"blocks").digest()[:16],
    block_tokens=128,
    block_bytes=3888,
    reuse="leading",
    replay_tokens=0,
    retention="agent",
)
"""With a header of 192 bytes, and 16 that a store may add, a block takes one page of 4,096."""

STATES = replace(
    BLOCKS,
    name="state",
    layout=hashlib.sha256(b"state").digest()[:16],
    block_bytes=1000,
    reuse="last",
    replay_tokens=128,
    retention="state",
)
