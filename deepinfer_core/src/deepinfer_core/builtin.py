"""Which components does the core itself offer?

The reference components are the specification in executable form: slow, obvious, on the CPU. Those
called ``core.cpu`` are the fast ones for the same device. All are found through the same entry
point as everybody else's.
"""

from __future__ import annotations

from collections.abc import Iterator

from deepinfer_core.interfaces.component import Promise
from deepinfer_core.interfaces.kinds import ALL_SLOTS, CONTRACTS, SERVED_SLOTS, SLOTS
from deepinfer_core.plugin import ComponentSpec, hookimpl

__all__ = ["deepinfer_components"]

# The contract suites test each promise. Nothing on a CPU is captured in a graph; the exchange of
# one process runs on every device.
_PROMISES: dict[str, Promise] = {
    "batch_invariant": "always",
    "deterministic": "always",
    "graph_safe": "never",
}

_NATIVE = ("attention", "gemm", "transform", "all_to_all", "sampler")
"""Kinds that ``core.cpu`` has kernels for."""


@hookimpl
def deepinfer_components() -> Iterator[ComponentSpec]:
    """Describe the CPU device, components for it, and those that run on every device."""
    yield ComponentSpec(
        kind="device",
        name="core.cpu",
        slots=SLOTS["device"],
        contract=CONTRACTS["device"],
        factory="deepinfer_core.reference.device:build_cpu",
        devices=("cpu",),
        facts="deepinfer_core.plugin.cpu_facts",
        properties=_PROMISES,
    )
    for kind, options in (
        ("attention", ""),
        ("gemm", "deepinfer_core.config.components:ReferenceGemmOptions"),
        ("transform", ""),
        ("sampler", ""),
    ):
        yield ComponentSpec(
            kind=kind,
            name="core.reference",
            slots=SLOTS[kind],
            contract=CONTRACTS[kind],
            factory=f"deepinfer_core.reference.{kind}:build",
            options=options,
            properties=_PROMISES,
        )
    for kind in _NATIVE:
        yield ComponentSpec(
            kind=kind,
            name="core.cpu",
            slots=SLOTS[kind],
            contract=CONTRACTS[kind],
            factory=f"deepinfer_core.native.{kind}:build",
            probe="deepinfer_core.native.probe:probe",
            devices=("cpu",),
            properties=_PROMISES,
        )
    yield ComponentSpec(
        kind="drafter",
        name="core.ngram",
        slots=ALL_SLOTS["drafter"],
        contract=CONTRACTS["drafter"],
        factory="deepinfer_core.reference.ngram:build",
        options="deepinfer_core.config.components:NgramOptions",
        properties={**_PROMISES, "graph_safe": "always"},
    )
    yield ComponentSpec(
        kind="all_to_all",
        name="core.local",
        slots=SLOTS["all_to_all"],
        contract=CONTRACTS["all_to_all"],
        factory="deepinfer_core.reference.all_to_all:build",
        properties={**_PROMISES, "graph_safe": "always"},
    )
    yield ComponentSpec(
        kind="kv_store",
        name="core.memory",
        slots=ALL_SLOTS["kv_store"],
        contract=CONTRACTS["kv_store"],
        factory="deepinfer_core.stores.memory:build",
        options="deepinfer_core.config.store_options:MemoryStoreOptions",
        properties={**_PROMISES, "graph_safe": "always"},
    )
    yield ComponentSpec(
        kind="kv_store",
        name="core.disk",
        slots=ALL_SLOTS["kv_store"],
        contract=CONTRACTS["kv_store"],
        factory="deepinfer_core.stores.disk.store:build",
        probe="deepinfer_core.stores.disk.probe:probe",
        options="deepinfer_core.config.store_options:DiskStoreOptions",
        properties={**_PROMISES, "graph_safe": "always"},
    )
    yield ComponentSpec(
        kind="kv_store",
        name="core.tiered",
        slots=ALL_SLOTS["kv_store"],
        contract=CONTRACTS["kv_store"],
        factory="deepinfer_core.stores.tiered.build:build",
        probe="deepinfer_core.stores.probe:probe_tiered",
        options="deepinfer_core.config.store_options:TieredStoreOptions",
        properties={**_PROMISES, "graph_safe": "always"},
        parts=("tiers",),
    )
    yield ComponentSpec(
        kind="kv_store",
        name="core.erasure",
        slots=ALL_SLOTS["kv_store"],
        contract=CONTRACTS["kv_store"],
        factory="deepinfer_core.stores.erasure.build:build",
        probe="deepinfer_core.stores.probe:probe_erasure",
        options="deepinfer_core.config.store_options:ErasureStoreOptions",
        properties={**_PROMISES, "graph_safe": "always"},
        parts=("children",),
    )
    yield ComponentSpec(
        kind="kv_store",
        name="core.peers",
        slots=ALL_SLOTS["kv_store"],
        contract=CONTRACTS["kv_store"],
        factory="deepinfer_core.stores.peers.build:build",
        probe="deepinfer_core.stores.probe:probe_peers",
        options="deepinfer_core.config.store_options:PeersStoreOptions",
        properties={**_PROMISES, "graph_safe": "always"},
    )
    yield ComponentSpec(
        kind="protocol",
        name="core.completions",
        slots=SERVED_SLOTS["protocol"],
        contract=CONTRACTS["protocol"],
        factory="deepinfer_core.server.completions.protocol:build",
    )
