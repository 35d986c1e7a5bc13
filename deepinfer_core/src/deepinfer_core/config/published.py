"""Which environment names of the published engine mean something here?

Users of DeepInfer 0.1.0 know these names. One whose feature exists here is an alias of a
configuration key; one whose feature does not is refused by name, because ignoring it would change
results or speed without a word. Source: environment table of DeepInfer 0.1.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from deepinfer_core.config.schema import Path

__all__ = ["ABSENT", "ALIASES", "Alias"]

_FALSE = frozenset({"0", "", "false", "False"})
_LEVELS = {"off": "off", "error": "error", "warn": "warning", "info": "info"}


@dataclass(frozen=True, slots=True)
class Alias:
    """An environment name that sets a key whose own name is another.

    Attributes:
        path: the key.
        convert: from the text to the key's value; None reads it like any other text.
    """

    path: Path
    convert: Callable[[str], Any] | None = None


def _flag(text: str) -> bool:
    """The published rule: false for these four spellings, true for anything else."""
    return text not in _FALSE


def _unset_flag(text: str) -> bool:
    return not _flag(text)


def _strict(text: str) -> tuple[str, ...]:
    return ("batch_invariant",) if _flag(text) else ()


def _level(text: str) -> str:
    return _LEVELS.get(text, text)


def _budget(text: str) -> str:
    return "planned" if _flag(text) else "fixed"


ALIASES: Mapping[str, Alias] = MappingProxyType(
    {
        "ACCELERATOR": Alias(("device",)),
        "BATCH_INVARIANT": Alias(("strict",), _strict),
        "CPP_LOG_LEVEL": Alias(("telemetry", "level"), _level),
        "DECODE_TOKEN_BLACKLIST": Alias(("engine", "decode_token_blacklist"), str),
        "DFLASH_CONFIDENCE_HEAD_TEMPERATURE": Alias(("drafter", "confidence_temperatures"), str),
        "ENABLE_MTP_VARLEN": Alias(("speculation", "budget"), _budget),
        "ENFORCE_EAGER": Alias(("engine", "graphs"), _unset_flag),
        "HF_MODEL_DIR": Alias(("model", "path")),
        "JIT_CACHE_DIR": Alias(("kernels", "cache_dir")),
        "MAX_BACKTRACKING_TOKENS": Alias(("engine", "max_backtracking_tokens")),
        "NUM_STATE_SLOTS_RATIO": Alias(("engine", "state_slots_ratio")),
        "PLUGINS_AUTOLOAD": Alias(("plugins", "autoload"), _flag),
        "USE_NEXTN_DECODE": Alias(("speculation", "max_drafts")),
        "YOCO_PREFILL_KEEP_TOKENS": Alias(("engine", "replay_keep_tokens")),
        "YOCO_PREFILL_TRUNCATION_MODE": Alias(("engine", "replay")),
        "ZERO_OVERHEAD_SCHEDULING": Alias(("engine", "asynchronous"), _flag),
    }
)

_GRAPHS = "device graphs of the drafter"
_EPLB = "expert load balancing"
_GRAMMAR = "structured output"
_VISION = "image input"
_VARLEN = "a choice of where measured step times are kept"
_VOTES = "step votes among data-parallel ranks"
_PROFILE = "profiling"

ABSENT: Mapping[str, str] = MappingProxyType(
    {
        "COMPUTE_SUM_SMALLER_PROBS": "the cumulative probability of sampled tokens",
        "CUDAGRAPH_BATCH_SIZE_INTERVAL": "a choice of which sizes of steps are recorded",
        "DECODE_PERF_CACHE_DIR": _VARLEN,
        "DECODE_PERF_CACHE_TTL_SEC": _VARLEN,
        "DFLASH_CUDAGRAPH_BATCH_SIZE_INTERVAL": _GRAPHS,
        "DFLASH_ENFORCE_EAGER": _GRAPHS,
        "DISABLE_SYNC_GUARD": "a guard against device synchronisation",
        "ENABLE_MEMORY_TRACING": _PROFILE,
        "ENGRAM_FORCE_GPU_STORAGE": "a choice of where n-gram tables live",
        "ENGRAM_PAD_TOKEN": "an n-gram padding token other than the checkpoint's",
        "EXPERT_COUNT_WINDOW_SIZE": _EPLB,
        "EXPERT_REARRANGEMENT_STEP_INTERVAL": _EPLB,
        "FORCE_IMBALANCE_RATIO": "forced expert routing",
        "FORCE_LOAD_BALANCE": "forced expert routing",
        "FUSED_SAMPLE_DETAIL_LOG": "a fused sampler",
        "FUSED_SAMPLE_STRESS_TEST": "a fused sampler",
        "GC_INTERVAL_STEP": "manual garbage collection",
        "GLOO_TIMEOUT": "collectives between processes",
        "INDEX_ATTN_MEMORY_LIMIT": "a workspace limit of the prefill indexer",
        "LOGGING_INTERVAL_STEP": "periodic statistics",
        "MOE_LB_STAT_INTERVAL": _EPLB,
        "MULTIMODAL_POOL_SIZE_GB": _VISION,
        "MULTI_MODAL_BUFFER_SIZE": _VISION,
        "MULTI_MODAL_WORKER_TIMEOUT": _VISION,
        "NCCL_MEMORY_SAMPLE_INTERVAL_STEPS": "collectives over NCCL",
        "NCCL_NUM_SMS": "collectives over NCCL",
        "OVERRIDE_NUM_EXTRA_EXPERTS": _EPLB,
        "PREFILL_ANY_ATTEMPT_INTERVAL": _VOTES,
        "PREFILL_ATTEMPT_INTERVAL": _VOTES,
        "PREFILL_MAX_SUM_SEQLEN_K": "a cap on the summed lengths of a prefill step",
        "PREFILL_STORE_EXTRA_SIZE": "a widened prefill ring",
        "PREFILL_STORE_EXTRA_STATE": "a widened prefill ring",
        "PROFILE_HTTP_ENABLE": _PROFILE,
        "PROFILE_HTTP_PORT_BASE": _PROFILE,
        "PROFILE_TORCH_CUDA_MEMORY": _PROFILE,
        "REARRANGE_AFTER_PREFILL_IN_NORMAL_ENGINE": _EPLB,
        "REARRANGE_P2P_GROUPS": _EPLB,
        "RINGBUFFER_WARNING_INTERVAL": "a broadcast over shared memory",
        "SAMPLER_FORCE_TOPK": "sampling among the largest logits only",
        "SHOW_EPLB_DETAIL": _EPLB,
        "SO_BUILDER_CPUS": _GRAMMAR,
        "TORCH_PROFILER_DIR": _PROFILE,
        "USERBUFFER_COMM_SMS": "a communication buffer for expert parallelism",
        "USE_MULTIMODAL_POOL": _VISION,
        "XGRAMMAR_CACHE_LIMIT_BYTES": _GRAMMAR,
        "XGRAMMAR_DEBUG": _GRAMMAR,
        "XGRAMMAR_DISABLE_CACHE": _GRAMMAR,
        "XGRAMMAR_TIMEOUT": _GRAMMAR,
    }
)
"""Published names without a feature here, each with the name of that feature."""
