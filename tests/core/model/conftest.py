"""Small models with golden weights, built once."""

from collections.abc import Callable

import pytest
import torch
from deepinfer_core.interfaces.numerics import ComputeDtype, Numerics
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.testing.tiny import golden_weights, tiny_test_config
from deepinfer_core.testing.tiny_model import tiny_model

MakeModel = Callable[..., TextModel]


@pytest.fixture(scope="session")
def golden() -> dict[str, torch.Tensor]:
    return golden_weights(tiny_test_config())


@pytest.fixture(scope="session")
def golden_model(golden: dict[str, torch.Tensor]) -> MakeModel:
    """Build the model that the known outputs belong to."""

    def build(
        compute: ComputeDtype, *, cache_quantisation: bool, config: ModelConfig | None = None
    ) -> TextModel:
        numerics = Numerics(
            compute=compute, activation_quantisation=False, cache_quantisation=cache_quantisation
        )
        return tiny_model(numerics, config=config, weights=golden)

    return build


@pytest.fixture(scope="session")
def short_config() -> ModelConfig:
    """Six layers with every feature, a block of entries at each end of the candidate pool."""
    return tiny_test_config(
        num_hidden_layers=6,
        compress_ratios=[0, 2, 2, 1, 1, 1, 0, 0],
        kv_source_layer_ids=[1, 3],
        index_source_layer_ids=[1, 3, 5],
        candidate_source_layer_id=3,
        candidate_topk_blocks=8,
        index_topk=8,
        engram_layer_ids=[0, 2],
        num_nextn_predict_layers=2,
        dspark_target_layer_ids=[4, 5],
    )


@pytest.fixture(scope="session")
def short_model(short_config: ModelConfig) -> MakeModel:
    """Build the short model in some numerics."""
    weights = golden_weights(short_config)

    def build(numerics: Numerics) -> TextModel:
        return tiny_model(numerics, config=short_config, weights=weights)

    return build


@pytest.fixture(
    scope="session",
    params=[
        Numerics(compute="float32", activation_quantisation=False, cache_quantisation=False),
        Numerics(),
    ],
    ids=["semantic", "production"],
)
def model(request: pytest.FixtureRequest, short_model: MakeModel) -> TextModel:
    """The short model, once without roundings and once with all."""
    return short_model(request.param)
