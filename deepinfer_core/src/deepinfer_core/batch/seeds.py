"""Which seed does a request get that brings none?

One that depends on its ``custom_id`` and ``engine.seed`` alone: not on its place in the file, on
what runs beside it or on how often the run was resumed. So an interrupted run draws what an
uninterrupted one draws, and another ``engine.seed`` draws anew.
"""

from __future__ import annotations

import hashlib

__all__ = ["seed_of_request"]


def seed_of_request(custom_id: str, engine_seed: int | None) -> int:
    """An unsigned 64-bit seed; ``engine_seed`` None counts as 0."""
    name = custom_id.encode("utf-8", "surrogatepass")
    key = (engine_seed or 0).to_bytes(8, "little")
    return int.from_bytes(hashlib.blake2b(name, digest_size=8, key=key).digest(), "little")
