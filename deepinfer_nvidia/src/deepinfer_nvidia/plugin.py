"""What does the NVIDIA distribution offer?

A family of operators joins ``_FAMILIES`` together with its factory ``<family>/tilelang.py:build``:
what is listed here can be built.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from deepinfer_core.interfaces.component import Promise
from deepinfer_core.plugin import ComponentSpec, hookimpl

__all__ = ["deepinfer_components"]

_DEVICE = "nvidia"

_PROMISES: Mapping[str, Promise] = {
    "batch_invariant": "always",
    "deterministic": "always",
    "graph_safe": "always",
}

_FAMILIES: Mapping[str, tuple[str, ...]] = {
    "all_to_all": ("all_to_all",),
    "attention": ("prefill", "decode", "indexer", "cache_codec"),
    "gemm": ("dense", "grouped"),
    "sampler": ("sampler",),
    "transform": ("transform",),
}
"""Slots of each kind that has kernels in TileLang."""

_WRAPPED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "deep_gemm": ("gemm", ("dense",)),
    "tile_kernels": ("transform", ("transform",)),
}
"""Kind and slots that a library of others serves, if it is installed: ``<kind>/<library>.py``."""


@hookimpl
def deepinfer_components() -> Iterator[ComponentSpec]:
    """Describe the device, and the components that have kernels for it."""
    yield ComponentSpec(
        kind="device",
        name="nvidia.cuda",
        slots=("device",),
        contract=1,
        factory="deepinfer_nvidia.device.cuda:build",
        probe="deepinfer_nvidia.probe:cuda",
        options="deepinfer_nvidia.options:CudaOptions",
        devices=(_DEVICE,),
        facts="deepinfer_nvidia.facts",
        properties=_PROMISES,
    )
    for kind, slots in _FAMILIES.items():
        yield ComponentSpec(
            kind=kind,
            name="nvidia.tilelang",
            slots=slots,
            contract=1,
            factory=f"deepinfer_nvidia.{kind}.tilelang:build",
            probe="deepinfer_nvidia.probe:tilelang",
            devices=(_DEVICE,),
            kernels="deepinfer_nvidia.kernels.catalogue:catalogue",
            properties=_PROMISES,
        )
    for library, (kind, slots) in _WRAPPED.items():
        yield ComponentSpec(
            kind=kind,
            name=f"nvidia.{library}",
            slots=slots,
            contract=1,
            factory=f"deepinfer_nvidia.{kind}.{library}:build",
            probe=f"deepinfer_nvidia.probe:{library}",
            devices=(_DEVICE,),
            properties=_PROMISES,
        )
