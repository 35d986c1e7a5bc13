"""What does the distribution offer? A store of blocks in a folder that machines share."""

from collections.abc import Iterator

from deepinfer_core.plugin import ComponentSpec, hookimpl

__all__ = ["deepinfer_components"]


@hookimpl
def deepinfer_components() -> Iterator[ComponentSpec]:
    """Describe both ways to its files. Bytes come back as they were stored, or not at all."""
    for way, options in (("posix", "PosixOptions"), ("usrbio", "UsrbioOptions")):
        yield ComponentSpec(
            kind="kv_store",
            name=f"threefs.{way}",
            slots=("kv_store",),
            contract=1,
            factory=f"deepinfer_threefs.components:{way}",
            probe=f"deepinfer_threefs.probe:{way}",
            options=f"deepinfer_threefs.options:{options}",
            properties={
                "batch_invariant": "always",
                "deterministic": "always",
                "graph_safe": "always",
            },
        )
