"""What does the distribution offer? One component an engine that makes masks."""

from collections.abc import Iterator

from deepinfer_core.plugin import ComponentSpec, hookimpl

__all__ = ["deepinfer_components"]


@hookimpl
def deepinfer_components() -> Iterator[ComponentSpec]:
    """Describe both. Masks are made on the CPU, for any device."""
    for engine in ("xgrammar", "llguidance"):
        yield ComponentSpec(
            kind="grammar",
            name=f"grammar.{engine}",
            slots=("grammar",),
            contract=1,
            factory=f"deepinfer_grammar.engines.{engine}_component:build",
            probe=f"deepinfer_grammar.probe:{engine}",
            properties={
                "batch_invariant": "always",
                "deterministic": "always",
                "graph_safe": "always",
            },
        )
