"""Which kinds of component exist, where is each needed, and in which revision of its contract?

A slot is a place where the engine needs exactly one component, or, if it is optional, one at most.
A kind with one slot names it after itself. Of a kind that is served any number works side by side;
the serving process builds them, and no engine needs one. Later kinds join these tables together
with their interface.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = [
    "ALL_SLOTS",
    "CONTRACTS",
    "DISTRIBUTIONS",
    "INTERFACES",
    "KNOWN_SLOTS",
    "OPTIONAL_SLOTS",
    "PROPERTIES",
    "PROVEN",
    "SERVED_SLOTS",
    "SLOTS",
    "slot_title",
]

SLOTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "device": ("device",),
        "attention": ("prefill", "decode", "indexer", "cache_codec"),
        "gemm": ("dense", "grouped"),
        "transform": ("transform",),
        "all_to_all": ("all_to_all",),
        "sampler": ("sampler",),
    }
)
"""Slots that must be filled, by kind, in the order in which reports show them."""

OPTIONAL_SLOTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"drafter": ("drafter",), "grammar": ("grammar",), "kv_store": ("kv_store",)}
)
"""Slots that stay empty until the configuration names a component, in the same order."""

ALL_SLOTS: Mapping[str, tuple[str, ...]] = MappingProxyType({**SLOTS, **OPTIONAL_SLOTS})
"""Slots of an engine."""

SERVED_SLOTS: Mapping[str, tuple[str, ...]] = MappingProxyType({"protocol": ("protocol",)})
"""Places of kinds of which any number works side by side."""

KNOWN_SLOTS: Mapping[str, tuple[str, ...]] = MappingProxyType({**ALL_SLOTS, **SERVED_SLOTS})

CONTRACTS: Mapping[str, int] = MappingProxyType(dict.fromkeys(KNOWN_SLOTS, 1))
"""Revision of each interface. The core accepts this one and the one before.

A changed signature or meaning raises it; a new method with a default body does not.
"""

INTERFACES: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("device", "device"): "deepinfer_core.interfaces.device:Device",
        ("attention", "prefill"): "deepinfer_core.interfaces.attention:SparseAttention",
        ("attention", "decode"): "deepinfer_core.interfaces.attention:SparseAttention",
        ("attention", "indexer"): "deepinfer_core.interfaces.attention:Indexer",
        ("attention", "cache_codec"): "deepinfer_core.interfaces.attention:CacheCodec",
        ("gemm", "dense"): "deepinfer_core.interfaces.gemm:DenseGemm",
        ("gemm", "grouped"): "deepinfer_core.interfaces.gemm:GroupedGemm",
        ("transform", "transform"): "deepinfer_core.interfaces.transform:Transform",
        ("all_to_all", "all_to_all"): "deepinfer_core.interfaces.all_to_all:AllToAll",
        ("sampler", "sampler"): "deepinfer_core.interfaces.sampler:Sampler",
        ("drafter", "drafter"): "deepinfer_core.interfaces.drafter:Drafter",
        ("grammar", "grammar"): "deepinfer_core.interfaces.grammar:Grammar",
        ("kv_store", "kv_store"): "deepinfer_core.interfaces.kv_store:KvStore",
        ("protocol", "protocol"): "deepinfer_core.interfaces.protocol:Protocol",
    }
)
"""The abstract class that fills each (kind, slot), as ``module:name``."""

DISTRIBUTIONS: Mapping[str, str] = MappingProxyType(
    {
        "bridge": "deepinfer-recipe-bridge",
        "dspark": "deepinfer-dspark",
        "grammar": "deepinfer-grammar",
        "nvidia": "deepinfer-nvidia",
        "threefs": "deepinfer-threefs",
        "cluster": "deepinfer-cluster",
    }
)
"""Distribution of this project by vendor of components; named where a component is missing."""

PROPERTIES: tuple[str, ...] = ("batch_invariant", "deterministic", "graph_safe")
"""Properties that a component may promise and a configuration may be strict about."""

PROVEN: tuple[str, ...] = ("batch_invariant", "deterministic")
"""Properties that components prove at load, where a configuration is strict about them."""


def slot_title(kind: str, slot: str) -> str:
    """Name of a slot in reports and messages: ``attention.decode``, or ``sampler``."""
    return kind if kind == slot else f"{kind}.{slot}"
