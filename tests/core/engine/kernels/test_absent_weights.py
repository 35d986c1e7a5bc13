"""Do weights without numbers look like those that a checkpoint gives?"""

from pathlib import Path

import pytest
from deepinfer_core.engine.kernels.absent_weights import AbsentWeights, stored_formats
from deepinfer_core.numeric import QuantTensor
from deepinfer_core.testing.byte_checkpoint import make_byte_checkpoint
from deepinfer_core.weights.checkpoint import Checkpoint, open_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    make_byte_checkpoint(folder)
    return folder


@pytest.fixture(scope="module")
def checkpoint(folder: Path) -> Checkpoint:
    return open_checkpoint(folder)


def form(weight: QuantTensor) -> list[tuple[object, ...]]:
    parts = [weight.data] if weight.scale is None else [weight.data, weight.scale]
    return [(weight.format, part.dtype, part.shape, part.stride()) for part in parts]


def test_every_weight_has_dtype_and_shape_of_the_stored_one(checkpoint: Checkpoint) -> None:
    absent = AbsentWeights(checkpoint.config, {})
    for name, weight in checkpoint.found.items():
        if name.endswith(".weight"):
            assert form(absent.quant(name)) == form(checkpoint.quant(name)), name
        if weight.scale is None:
            here, stored = absent.tensor(name), checkpoint.tensor(name)
            assert (here.dtype, here.shape, here.device.type) == (
                stored.dtype,
                stored.shape,
                "meta",
            )


def test_experts_are_stacked_like_those_of_a_checkpoint(checkpoint: Checkpoint) -> None:
    absent = AbsentWeights(checkpoint.config, {})
    for got, stored in zip(
        absent.experts("layers.0.ffn.experts"),
        checkpoint.experts("layers.0.ffn.experts"),
        strict=True,
    ):
        assert form(got) == form(stored)


def test_a_weight_that_is_stored_otherwise_is_so_here(checkpoint: Checkpoint) -> None:
    name = "layers.0.attn.wq_a.weight"
    assert AbsentWeights(checkpoint.config, {}).quant(name).format == "fp8_32x32"
    weight = AbsentWeights(checkpoint.config, {name: "bfloat16"}).quant(name)
    assert (weight.format, weight.scale) == ("bfloat16", None)


def test_the_formats_are_those_of_the_files(folder: Path, checkpoint: Checkpoint) -> None:
    assert stored_formats(folder) == {n: one.format for n, one in checkpoint.found.items()}


def test_without_files_the_config_decides(tmp_path: Path) -> None:
    assert stored_formats(tmp_path) == {}
