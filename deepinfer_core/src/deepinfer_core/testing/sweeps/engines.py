"""Which engines do the sweeps put together, as far as the kernels of a backend depend on it?

A device has their kernels compiled before the first test (``testing.rehearsed_engines``); what a
sweep then calls besides is compiled when it is called, one kernel after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepinfer_core.interfaces.draft_planner import AcceptanceRule
from deepinfer_core.testing.beginnings import LONGEST
from deepinfer_core.testing.rehearsed_engines import RehearsedEngine
from deepinfer_core.testing.small_engines import EngineShape, slim_config

__all__ = ["SHALLOW", "swept_engines"]

SHALLOW: dict[str, Any] = {
    "num_hidden_layers": 2,
    "compress_ratios": [2, 1],
    "kv_source_layer_ids": [0, 1],
    "index_source_layer_ids": [0, 1],
    "candidate_source_layer_id": 1,
    "engram_layer_ids": [],
    "engram_num_embeddings": [],
    "num_nextn_predict_layers": 0,
    "dspark_target_layer_ids": [],
}
"""Two layers without a drafter: keys of a window reach back 381 tokens, less than a prompt."""


def swept_engines() -> list[RehearsedEngine]:
    """For each form of caches one engine with the largest steps, and the texts without engine."""
    slim = slim_config(16)
    plain = RehearsedEngine(
        config=slim,
        shape=EngineShape(max_rows=4096),
        has_records=True,
        most_scored=64,
        alternatives=(1, 2),
    )
    verified: Sequence[tuple[int, AcceptanceRule]] = ((5, "match"), (5, "ratio"), (8, "match"))
    drafting = [
        RehearsedEngine(
            config=slim,
            shape=EngineShape(max_rows=144, longest=200, drafts=drafts, rule=rule),
            has_drafts=True,
            alternatives=(2,),
        )
        for drafts, rule in verified
    ]
    whole = [
        RehearsedEngine(
            config=config,
            shape=EngineShape(block_tokens=128, max_rows=most_rows),
            most_scored=LONGEST,
        )
        for config, most_rows in (
            (slim, 1024),
            (slim_config(128), 4096),
            (slim_config(128, **SHALLOW), 4096),
        )
    ]
    return [plain, *drafting, *whole]
