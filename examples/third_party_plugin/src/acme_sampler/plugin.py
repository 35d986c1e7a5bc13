"""What does this distribution offer? Imports nothing that the sampler needs to run."""

from collections.abc import Iterator

from deepinfer_core.plugin import ComponentSpec, hookimpl


@hookimpl
def deepinfer_components() -> Iterator[ComponentSpec]:
    """Describe the sampler."""
    yield ComponentSpec(
        kind="sampler",
        name="acme.gumbel",
        slots=("sampler",),
        contract=1,
        factory="acme_sampler.sampler:build",
        properties={"batch_invariant": "always", "deterministic": "always"},
        devices=("cpu",),
    )
