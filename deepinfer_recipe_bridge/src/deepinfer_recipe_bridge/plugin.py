"""What does the distribution offer? One component a protocol."""

from collections.abc import Iterator

from deepinfer_core.plugin import ComponentSpec, hookimpl

__all__ = ["deepinfer_components"]


@hookimpl
def deepinfer_components() -> Iterator[ComponentSpec]:
    """Describe all three."""
    for protocol in ("chat", "responses", "messages"):
        yield ComponentSpec(
            kind="protocol",
            name=f"bridge.{protocol}",
            slots=("protocol",),
            contract=1,
            factory=f"deepinfer_recipe_bridge.{protocol}:build",
            options=f"deepinfer_recipe_bridge.options:{protocol.capitalize()}Options",
        )
