"""A small model whose components can be replaced one slot at a time."""

import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from deepinfer_core.engine.proof.proving import prove
from deepinfer_core.interfaces.kinds import SLOTS
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.builder import build_model
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.plugin import BuildContext, ComponentSpec, ModelNeeds, Pick, Resolved, load
from deepinfer_core.testing.tiny import golden_weights, tiny_test_config
from deepinfer_core.testing.tiny_model import PlainWeights

Prove = Callable[..., TextModel]

REFERENCE = {
    "device": "deepinfer_core.reference.device:build_cpu",
    "attention": "deepinfer_core.reference.attention:build",
    "gemm": "deepinfer_core.reference.gemm:build",
    "transform": "deepinfer_core.reference.transform:build",
    "all_to_all": "deepinfer_core.reference.all_to_all:build",
    "sampler": "deepinfer_core.reference.sampler:build",
}


@pytest.fixture(scope="session")
def config() -> ModelConfig:
    """Four layers with every feature, narrow vocabulary."""
    return tiny_test_config(
        vocab_size=512,
        dspark_noise_token_id=511,
        engram_compressed_vocab_size=500,
        num_hidden_layers=4,
        compress_ratios=[0, 2, 1, 1, 0],
        kv_source_layer_ids=[1, 2],
        index_source_layer_ids=[1, 2, 3],
        candidate_source_layer_id=2,
        engram_layer_ids=[1],
        engram_num_embeddings=[1618],
        num_nextn_predict_layers=1,
        dspark_target_layer_ids=[3],
    )


@pytest.fixture(scope="session")
def weights(config: ModelConfig) -> dict[str, torch.Tensor]:
    return golden_weights(config)


@pytest.fixture
def prove_with(
    config: ModelConfig, weights: dict[str, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> Prove:
    """Build the model with some components in place of the reference's, and prove it."""

    def run(
        changes: Mapping[tuple[str, str], Any] | None = None,
        strict: tuple[str, ...] = ("batch_invariant",),
        numerics: Numerics | None = None,
    ) -> TextModel:
        module = types.ModuleType("acme_variants")
        monkeypatch.setitem(sys.modules, "acme_variants", module)
        numerics = numerics or Numerics()
        resolved = _resolved(changes or {}, strict, numerics.compute, module)
        model = build_model(
            PlainWeights(config=config, tensors=weights),
            _parts(resolved, numerics),
            compressed_ids=torch.arange(512) % 500,
        )
        prove(model, load(resolved, "sampler"), resolved, max_rows=257)
        return model

    return run


def _resolved(
    changes: Mapping[tuple[str, str], Any],
    strict: tuple[str, ...],
    compute: str,
    module: types.ModuleType,
) -> Resolved:
    picks = []
    for kind, slots in SLOTS.items():
        for slot in slots:
            name, factory = "core.reference", REFERENCE[kind]
            if (kind, slot) in changes:
                name, factory = f"acme.{slot}", f"acme_variants:build_{slot}"
                component = changes[kind, slot]
                setattr(module, f"build_{slot}", lambda options, context, it=component: it)
            spec = ComponentSpec(
                kind=kind, name=name, slots=(slot,), contract=1, factory=factory, devices=("cpu",)
            )
            distribution = "deepinfer-core" if name == "core.reference" else "acme-dist"
            picks.append(
                Pick(kind=kind, slot=slot, spec=spec, settings={}, distribution=distribution)
            )
    needs = ModelNeeds(compute=compute)
    context = BuildContext(device="cpu", needs=needs, strict=strict)
    return Resolved(context=context, picks=tuple(picks), distributions=())


def _parts(resolved: Resolved, numerics: Numerics) -> ModelParts:
    return ModelParts(
        device=load(resolved, "device"),
        prefill=load(resolved, "attention", "prefill"),
        decode=load(resolved, "attention", "decode"),
        indexer=load(resolved, "attention", "indexer"),
        codec=load(resolved, "attention", "cache_codec"),
        dense=load(resolved, "gemm", "dense"),
        grouped=load(resolved, "gemm", "grouped"),
        transform=load(resolved, "transform"),
        all_to_all=load(resolved, "all_to_all"),
        numerics=numerics,
    )
