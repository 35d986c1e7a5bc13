"""What does the distribution offer? A drafter, and a verb that fits its confidences."""

from collections.abc import Iterator

from deepinfer_core.plugin import ComponentSpec, VerbSpec, hookimpl

__all__ = ["deepinfer_cli_verbs", "deepinfer_components"]


@hookimpl
def deepinfer_components() -> Iterator[ComponentSpec]:
    """Describe the drafter. It computes with the model's own components, on any device."""
    yield ComponentSpec(
        kind="drafter",
        name="dspark.block",
        slots=("drafter",),
        contract=1,
        factory="deepinfer_dspark.drafter:build",
        options="deepinfer_dspark.options:DsparkOptions",
        properties={
            "batch_invariant": "always",
            "deterministic": "always",
            "graph_safe": "always",
        },
    )


@hookimpl
def deepinfer_cli_verbs() -> Iterator[VerbSpec]:
    """Describe the verb."""
    yield VerbSpec(
        name="calibrate",
        summary="fit the drafter's confidences to what became of recorded drafts",
        module="deepinfer_dspark.calibrate",
    )
