"""Which settings do keyword arguments of ``LLM`` stand for?

Keywords of DeepInfer 0.1.0 that mean nothing here are refused by name, because ignoring them would
change what a program gets without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from deepinfer_core.config.settings import EngineSettings
from deepinfer_core.errors import ConfigError

__all__ = ["settings_by_path"]

_ONE_DEVICE = "this version runs on one device; leave it out"
_LOCAL = "a checkpoint is a local folder with its own tokenizer; leave it out"

_PUBLISHED: Mapping[str, str] = MappingProxyType(
    {
        "decode_sequence": "completions hold both text and token ids; leave it out",
        "gpu_memory_utilization": "use kv_cache_bytes or num_blocks",
        "disable_log_stats": "use telemetry.level",
        "stop_preempted_request": "preempted requests are always resumed; leave it out",
        "chunked_prefill": "prompts are always chunked; leave it out",
        "tokens_per_block": "a block has 128 tokens; leave it out",
        "load_format": "checkpoints are safetensors; deepinfer checkpoint make-random writes some",
        "context_parallel_size": _ONE_DEVICE,
        "data_parallel_size": _ONE_DEVICE,
        "engram_parallel_size": _ONE_DEVICE,
        "expert_parallel_size": _ONE_DEVICE,
        "revision": _LOCAL,
        "tokenizer": _LOCAL,
        "tokenizer_revision": _LOCAL,
        "trust_remote_code": _LOCAL,
    }
)
"""Published keywords, each with what to do instead."""


def settings_by_path(model: str | Path | None, overrides: Mapping[str, Any]) -> dict[str, object]:
    """Keyword arguments as settings by dotted path.

    Raises:
        ConfigError: a keyword of the published engine that means nothing here.
    """
    found: dict[str, object] = {} if model is None else {"model.path": str(model)}
    for name, value in overrides.items():
        if name in _PUBLISHED:
            raise ConfigError(f"LLM takes no {name}", hint=_PUBLISHED[name])
        section = "engine." if name in EngineSettings.model_fields else ""
        found["model.numerics" if name == "numerics" else f"{section}{name}"] = value
    return found
