"""What do tests of the NVIDIA distribution share? A GPU that is not there, and one that is."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.plugin import DeviceFacts, ModelNeeds, ProbeContext
from deepinfer_nvidia.all_to_all.tilelang import TileLangExchange
from deepinfer_nvidia.attention.tilelang import TileLangAttention
from deepinfer_nvidia.gemm.tilelang import TileLangGemm
from deepinfer_nvidia.transform.tilelang import TileLangTransform

FACTS = DeviceFacts(
    device="nvidia",
    model="NVIDIA H200",
    count=1,
    capability=(9, 0),
    memory_bytes=150 << 30,
    cores=132,
    extra={"driver_cuda": "13.0", "torch_cuda": "13.0", "nvcc": "/usr/local/cuda/bin/nvcc"},
)


@pytest.fixture
def make_context() -> Callable[..., ProbeContext]:
    """A machine where everything runs, but for the changes."""

    def make(versions: dict[str, str] | None = None, **changes: Any) -> ProbeContext:
        needs = changes.pop("needs", ModelNeeds())
        cache_dir = changes.pop("cache_dir", "")
        extra = {**FACTS.extra, **changes.pop("extra", {})}
        return ProbeContext(
            device=replace(FACTS, extra=extra, **changes),
            needs=needs,
            versions={"tilelang": "0.1.15"} if versions is None else versions,
            cache_dir=cache_dir,
        )

    return make


@pytest.fixture(scope="session")
def with_kernels() -> Callable[..., ModelParts]:
    """Puts the components of this distribution, over given kernels, in place of a model's own."""

    def fill(parts: ModelParts, kernels: Kernels, *, is_hopper: bool = True) -> ModelParts:
        attention = TileLangAttention(kernels, is_hopper=is_hopper)
        gemm = TileLangGemm(kernels, is_hopper=is_hopper)
        return replace(
            parts,
            prefill=attention,
            decode=attention,
            indexer=attention,
            codec=attention,
            dense=gemm,
            grouped=gemm,
            transform=TileLangTransform(kernels),
            all_to_all=TileLangExchange(kernels),
        )

    return fill
