"""What does the distribution offer? A store of blocks in a pool of memory."""

from collections.abc import Iterator

from deepinfer_core.plugin import ComponentSpec, hookimpl

__all__ = ["deepinfer_components"]


@hookimpl
def deepinfer_components() -> Iterator[ComponentSpec]:
    """Describe it. Bytes come back as they were stored, or not at all."""
    yield ComponentSpec(
        kind="kv_store",
        name="cluster.mooncake",
        slots=("kv_store",),
        contract=1,
        factory="deepinfer_cluster.component:build",
        probe="deepinfer_cluster.probe:mooncake",
        options="deepinfer_cluster.options:MooncakeOptions",
        properties={
            "batch_invariant": "always",
            "deterministic": "always",
            "graph_safe": "always",
        },
    )
